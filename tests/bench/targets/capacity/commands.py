"""What a message costs on its way: CPU time of Redis and of the process that asks, and bytes that Redis logs."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.consuming.types import Request
from kombu_delayq.store.keys import Keys
from tests.bench.servers import main_thread_s
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.capacity.constants import SIZES, Constant, of_size
from tests.bench.targets.capacity.crowd import CLIENTS, At, costs_us, crowd
from tests.bench.targets.load import PER_CALL, QUEUE, fill, within_the_last_hour, within_the_next_hour

#: Whether the server has hash slots, by the name of the layout of keys.
LAYOUTS = {"plain": False, "slots": True}
#: Queue of the app.
APP_QUEUE = "celery"
#: What the app's messages are due within, in s: nobody transfers meanwhile.
WITHIN_S = (600, 4200)
_LOGS = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")


class Cost(NamedTuple):
    """CPU time in µs: of Redis's main thread, and of this process."""

    redis: float
    own: float


#: By layout, operation and size, what was seen in each round.
Found = dict[At, list[Cost]]


class Broker(NamedTuple):
    """A server, and those who use it; the texts that give messages their sizes."""

    client: Any
    store: DelayStore
    app: Celery
    pads: Mapping[int, str]


def measure(quick: bool) -> Iterator[Constant]:
    """Measures each operation in rounds, over all layouts and sizes in turn."""
    rounds = 4 if quick else 12
    with ExitStack() as opened:
        broker = {layout: opened.enter_context(_broker(slots=slots)) for layout, slots in LAYOUTS.items()}
        found = _costs(broker, rounds)
    with ExitStack() as opened:
        crowds = {layout: opened.enter_context(crowd(slots=slots)) for layout, slots in LAYOUTS.items()}
        busy = costs_us(crowds, SIZES, rounds)
    for layout in LAYOUTS:
        yield from _alone(layout, found)
        yield from _busy(layout, found, busy)
    yield from _own(found)
    for what, points in _logged().items():
        yield of_size(f"log, {what}", ("log_bytes", what), points, "bytes", 1)


def _alone(layout: str, found: Found) -> Iterator[Constant]:
    """Tells what an idle Redis takes for requests that come one by one."""
    for what in ("publish", "delay"):
        points = [(size, median(cost.redis for cost in found[layout, what, size])) for size in SIZES]
        yield of_size(f"Redis CPU, {what} one by one, {layout}", ("alone_us", layout, what), points, "µs", 1000)
    call = median(cost.redis for size in SIZES for cost in found[layout, "transfer_call", size])
    name, path = f"Redis CPU, call of a transfer, alone, {layout}", ("alone_us", layout, "transfer_call")
    yield Constant(name, call, "µs", path=path, numbers=(call, 0.0), note="for one message, less the message")


def _busy(layout: str, found: Found, crowds: Mapping[At, float]) -> Iterator[Constant]:
    """Tells what a busy Redis takes."""
    note = f"{CLIENTS} clients at once"
    for what in ("publish", "delay", "consume"):
        points = [(size, crowds[layout, what, size]) for size in SIZES]
        yield of_size(f"Redis CPU, {what}, {note}, {layout}", ("redis_us", layout, what), points, "µs", 1000)
    moved = {}
    for what in ("delay_many", "transfer"):
        points = [(size, median(cost.redis for cost in found[layout, what, size])) for size in SIZES]
        moved = dict(points)
        yield of_size(f"Redis CPU, {what}, {PER_CALL} a call, {layout}", ("redis_us", layout, what), points, "µs", 1000)
    call = max(0.0, median(crowds[layout, "transfer_one", size] - moved[size] for size in SIZES))
    name, path = f"Redis CPU, call of a transfer, {note}, {layout}", ("redis_us", layout, "transfer_call")
    yield Constant(name, call, "µs", path=path, numbers=(call, 0.0))


def _own(found: Found) -> Iterator[Constant]:
    for what in ("publish", "delay", "delay_many"):
        own = median(cost.own for cost in found["plain", what, SIZES[0]])
        yield Constant(f"publisher's CPU, {what}", own, "µs", path=("client_us", what), numbers=(own,))
    for what, path in (("transfer_call", "leader_call_us"), ("transfer", "leader_message_us")):
        own = max(0.0, median(cost.own for size in SIZES for cost in found["plain", what, size]))
        yield Constant(f"leader's CPU, {what}", own, "µs", path=(path,), numbers=(own,))


@contextmanager
def _broker(*, slots: bool) -> Iterator[Broker]:
    with PrivateRedis(slots=slots) as server:
        client: Any = redis.Redis(port=server.port)
        store, app = DelayStore(client, Keys(slots=slots)), make_app(server.url, OURS)
        yield Broker(client, store, app, {size: pad(app, client, size) for size in SIZES})
        app.close()
        store.close()


def _costs(brokers: Mapping[str, Broker], rounds: int) -> Found:
    """Returns what was seen in each round."""
    found: Found = {}
    for turn in range(rounds + 1):
        for size in SIZES:
            for layout, one in brokers.items():
                costs = dict(_published(one.app, one.client, one.pads[size])) | dict(_stored(one.store, size))
                for what, cost in costs.items():
                    if turn:  # the first warms up
                        found.setdefault((layout, what, size), []).append(cost)
                for key in (APP_QUEUE, QUEUE, *one.store.keys.stored(APP_QUEUE, "hash")):
                    one.client.delete(key)
    return found


def _published(app: Celery, client: Any, padding: str) -> Iterator[tuple[str, Cost]]:
    """Publishes messages one by one."""
    yield "publish", _cost(client, PER_CALL, lambda: send(app, padding))
    yield "delay", _cost(client, PER_CALL, lambda: send(app, padding, countdown=random.uniform(*WITHIN_S)))


def _stored(store: DelayStore, size: int) -> Iterator[tuple[str, Cost]]:
    """Offers many messages in a call, and transfers them: one a call, and as many as a call moves."""
    client = store.client
    many = _cost(client, 5, lambda: fill(store, PER_CALL, within_the_last_hour(), lambda: size))
    yield "delay_many", Cost(many.redis / PER_CALL, many.own / PER_CALL)
    waiting = 5 * PER_CALL
    whole = _cost(client, 1, lambda: _transfer_all(store))
    fill(store, PER_CALL, within_the_next_hour(), lambda: size)
    ids = iter(store.client.zrange(store.keys.due(QUEUE), 0, -1))
    one = _cost(client, PER_CALL, lambda: _one(store, next(ids)))
    numbers = iter(range(PER_CALL))
    zadd = _cost(client, PER_CALL, lambda: client.zadd("scores", {str(next(numbers)): 1}))
    calls = waiting / PER_CALL
    # A call of 200 costs the call and 200 messages; one of 1 costs the call and 1 message.
    each = Cost(
        *(
            (total - calls * (single - add)) / (waiting - calls)
            for total, single, add in zip(whole, one, zadd, strict=True)
        )
    )
    yield "transfer", each
    yield "transfer_call", Cost(*(single - add - message for single, add, message in zip(one, zadd, each, strict=True)))
    client.delete("scores")


def _one(store: DelayStore, member: bytes) -> None:
    """Makes a message due, and transfers it."""
    store.client.zadd(store.keys.due(QUEUE), {member: 1})
    if store.delivery.transfer(QUEUE).moved != 1:
        raise RuntimeError("a call did not move the one message that is due")


def _transfer_all(store: DelayStore) -> None:
    while store.delivery.transfer(QUEUE).moved:
        pass


def send(app: Celery, padding: str, **options: Any) -> None:
    """Publishes a task whose message has this text beside what Celery writes."""
    app.tasks["bench.begin"].apply_async((0.0,), kwargs={"pad": padding}, kwargsrepr="{}", **options)


def pad(app: Celery, client: Any, size: int) -> str:
    """Returns the text with which a message has this size."""
    send(app, "")
    bare = len(client.rpop(APP_QUEUE))
    return "x" * max(0, (size - bare) * 3 // 4)  # the body is in base64


def _cost(client: Any, times: int, work: Callable[[], object]) -> Cost:
    """Returns what a call costs, of so many."""
    redis_s, own_s = main_thread_s(client), process_time()
    for _ in range(times):
        work()
    own_s = process_time() - own_s
    return Cost((main_thread_s(client) - redis_s) / times * 1e6, own_s / times * 1e6)


def _logged() -> dict[str, list[tuple[int, float]]]:
    """Returns by operation the bytes that Redis writes to its log for a message of each size; replicas get as many."""
    found: dict[str, list[tuple[int, float]]] = {}
    for size in SIZES:
        with PrivateRedis(*_LOGS) as server:
            client: Any = redis.Redis(port=server.port)
            store = DelayStore(client)
            app = make_app(server.url, OURS)
            padding = pad(app, client, size)
            store.consumers.beat("bench:1:a", [QUEUE, APP_QUEUE], is_new=True)
            sizes = [_log_bytes(client)]
            for work in (
                lambda app=app, padding=padding: [send(app, padding) for _ in range(PER_CALL)],
                lambda store=store, size=size: [
                    fill(store, 1, within_the_last_hour(), lambda: size) for _ in range(PER_CALL)
                ],
                lambda store=store: _transfer_all(store),
                lambda store=store: _consume(store),
            ):
                work()
                sizes.append(_log_bytes(client))
            for at, what in enumerate(("publish", "delay", "transfer", "consume")):
                found.setdefault(what, []).append((size, (sizes[at + 1] - sizes[at]) / PER_CALL))
            app.close()
            store.close()
    return found


def _consume(store: DelayStore) -> None:
    taken = 0
    while found := store.taking.take(Request("bench:1:a", taken, 8, [QUEUE])):
        taken += len(found)
        store.taking.ack([one.tag for one in found], QUEUE)


def _log_bytes(client: Any) -> int:
    return int(client.info("persistence")["aof_current_size"])
