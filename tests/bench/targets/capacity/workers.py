"""What workers cost Redis: for a message, and when they have nothing to do; and how many connections they have."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, NamedTuple
from uuid import uuid4

import psutil
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.journal import Journal
from tests.bench.servers import main_thread_s
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.capacity.commands import APP_QUEUE, LAYOUTS, pad, send
from tests.bench.targets.capacity.constants import SIZES, Constant, of_size
from tests.bench.targets.cluster.places import QUIET, three_nodes
from tests.bench.targets.consume.kinds import TASK_ID
from tests.bench.targets.worker import answers, started
from tests.support.conditions import until

#: Queues of the worker that has many, and workers of the fleet.
QUEUES, FLEET = 8, 5
#: How long workers are left alone before they are watched, and watched, in s.
SETTLE_S, WATCH_S = 4.0, 24.0
#: Time between two messages that come one by one, in s.
BETWEEN_S = (0.004, 0.012)
#: Listeners, heartbeats that they hear, and bytes of one, as Celery writes it.
LISTENERS, HEARTBEATS, HEARTBEAT_BYTES = 100, 100, 600


class Idle(NamedTuple):
    """CPU time of Redis in µs a second, commands a second, and connections."""

    us: float
    commands: float
    connections: int


@dataclass(frozen=True)
class Fleet:
    """Workers of one server, and what their tasks write."""

    server: PrivateRedis
    journal: Journal
    pids: Sequence[int]

    def cpu_s(self) -> float:
        """Returns the CPU time of the workers."""
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)


def measure(quick: bool) -> Iterator[Constant]:
    """Watches fleets with and without hash slots."""
    for layout, slots in LAYOUTS.items():
        with ExitStack() as opened:
            fleets = [
                opened.enter_context(fleet(slots=slots, workers=workers, queues=queues))
                for workers, queues in ((1, 1), (1, QUEUES), (FLEET, 1))
            ]
            for one in fleets:
                answers(one.server.url, OURS)
            sleep(SETTLE_S)
            idle = _idle(fleets, WATCH_S / 3 if quick else WATCH_S)
            yield from _of_idle(layout, *idle)
            yield from _of_messages(layout, fleets[0], idle[0].us, 60 if quick else 200)
    nodes_us = {"plain": 0.0, "slots": _node_us(WATCH_S / 3)}
    for layout, found in nodes_us.items():
        path = ("idle", layout, "node_us")
        yield Constant(f"Redis CPU of a node for the others, {layout}", found, "µs/s", path=path, numbers=(found,))
    heard = _heard_us()
    note = f"{LISTENERS} listeners"
    yield Constant(
        "Redis CPU for each that hears a heartbeat", heard, "µs", path=("heard_us",), numbers=(heard,), note=note
    )


@contextmanager
def fleet(*, slots: bool, workers: int, queues: int) -> Iterator[Fleet]:
    """Starts a server and workers that all consume the same queues."""
    with PrivateRedis(slots=slots) as server, TemporaryDirectory(prefix="delayq-bench-") as directory:
        journal = Journal(Path(directory) / "journal")
        names = [APP_QUEUE, *(f"bench{number}" for number in range(1, queues))]
        with ExitStack() as opened:
            pids = [
                opened.enter_context(
                    started(server.url, OURS, {}, *QUIET, "-n", f"w{number}@%h", queues=names, journal=journal.path)
                )
                for number in range(workers)
            ]
            yield Fleet(server, journal, pids)


def _idle(fleets: Sequence[Fleet], watch_s: float) -> list[Idle]:
    before, begun = [_seen(one.server) for one in fleets], monotonic()
    sleep(watch_s)
    after, took_s = [_seen(one.server) for one in fleets], monotonic() - begun
    return [
        Idle((now.us - then.us) / took_s, (now.commands - then.commands) / took_s, now.connections)
        for now, then in zip(after, before, strict=True)
    ]


def _seen(server: PrivateRedis) -> Idle:
    with server.client() as client:
        commands = int(client.info("stats")["total_commands_processed"])
        return Idle(main_thread_s(client) * 1e6, commands, int(client.info("clients")["connected_clients"]) - 1)


def _of_idle(layout: str, one: Idle, many: Idle, several: Idle) -> Iterator[Constant]:
    """Tells what the first worker costs from what each further one does, and from each further queue."""
    queue = Idle(*((more - less) / (QUEUES - 1) for more, less in zip(many, one, strict=True)))  # type: ignore[arg-type]
    worker = Idle(*((more - less) / (FLEET - 1) for more, less in zip(several, one, strict=True)))  # type: ignore[arg-type]
    rows = {
        "fleet_us": ("Redis CPU for the first idle worker", one.us - worker.us, "µs/s"),
        "worker_us": ("Redis CPU for an idle worker", worker.us - queue.us, "µs/s"),
        "queue_us": ("Redis CPU for each of its queues", queue.us, "µs/s"),
        "worker_commands": ("commands of an idle worker", worker.commands, "/s"),
        "queue_commands": ("commands for each further queue", queue.commands, "/s"),
    }
    for name, (what, found, unit) in rows.items():
        kept = max(0.0, found)
        yield Constant(f"{what}, {layout}", kept, unit, path=("idle", layout, name), numbers=(kept,))
    for name, found in (("worker", worker.connections - queue.connections), ("queue", queue.connections)):
        path = ("connections", layout, name)
        yield Constant(f"connections, {name}, {layout}", round(found), "", path=path, numbers=(round(found),))


def _of_messages(layout: str, one: Fleet, idle_us: float, count: int) -> Iterator[Constant]:
    """Feeds a worker one by one, and then many at once."""
    client: Any = redis.Redis(port=one.server.port)
    app = make_app(one.server.url, OURS)
    alone, many, own = [], [], 0.0
    for size in (SIZES[0], SIZES[-1]):
        made = _template(size)
        alone.append((size, _alone_us(one, client, made, count) - idle_us * sum(BETWEEN_S) / 2 / 1e6))
        before, own_s = one.journal.count(), one.cpu_s()
        begun, waiting = monotonic(), count * 10
        client.lpush(APP_QUEUE, *[made.replace(TASK_ID, str(uuid4())) for _ in range(waiting)])
        pushed_s = main_thread_s(client)
        until(lambda before=before, waiting=waiting: one.journal.count() >= before + waiting, 60, "all begin")
        took_us = (main_thread_s(client) - pushed_s) * 1e6 - idle_us * (monotonic() - begun)
        many.append((size, took_us / waiting))
        own = own or (one.cpu_s() - own_s) / waiting * 1e6
    app.close()
    yield of_size(f"Redis CPU, consume one by one, {layout}", ("alone_us", layout, "consume"), alone, "µs", 1000)
    yield of_size(f"Redis CPU, consume a backlog, {layout}", ("redis_us", layout, "consume_many"), many, "µs", 1000)
    if layout == "plain":
        yield Constant("worker's CPU for an empty task", own, "µs", path=("client_us", "consume"), numbers=(own,))


def _alone_us(one: Fleet, client: Any, made: str, count: int) -> float:
    """Returns the CPU time of Redis for a message that finds the worker idle, in µs, without its publishing."""
    costs = []
    for queue in ("aside", APP_QUEUE):
        before = main_thread_s(client)
        for _ in range(count):
            seen = one.journal.count()
            client.lpush(queue, made.replace(TASK_ID, str(uuid4())))
            if queue == APP_QUEUE:
                until(lambda seen=seen: one.journal.count() > seen, 10, "a task begins")
            sleep(random.uniform(*BETWEEN_S))
        costs.append((main_thread_s(client) - before) / count * 1e6)
    client.delete("aside")
    return costs[1] - costs[0]


def _node_us(watch_s: float) -> float:
    """Returns the CPU time that a node without clients takes to hear of the others, in µs a second."""
    with three_nodes() as place:
        sleep(SETTLE_S)
        before, begun = place.main_s(), monotonic()
        sleep(watch_s)
        return (place.main_s() - before) / (monotonic() - begun) / len(place.clients) * 1e6


def _heard_us() -> float:
    """Returns the CPU time of Redis for each listener of a message, in µs."""
    with PrivateRedis(slots=False) as server:
        client, costs = server.client(), []
        listeners: list[Any] = []
        for more in (1, LISTENERS):
            while len(listeners) < more:
                listeners.append(server.client().pubsub(ignore_subscribe_messages=True))
                listeners[-1].subscribe("heartbeats")
                listeners[-1].get_message(timeout=5)
            before = main_thread_s(client)
            for _ in range(HEARTBEATS):
                client.publish("heartbeats", "x" * HEARTBEAT_BYTES)
            costs.append((main_thread_s(client) - before) / HEARTBEATS * 1e6)
        for listener in listeners:
            listener.close()
        return (costs[1] - costs[0]) / (LISTENERS - 1)


def _template(size: int) -> str:
    """Returns a message of this size, with ``TASK_ID`` as each of its ids."""
    with PrivateRedis(slots=False) as server:
        client: Any = server.client()
        app = make_app(server.url)
        send(app, pad(app, client, size), task_id=TASK_ID)
        made = str(client.rpop(APP_QUEUE))
        app.close()
        return made
