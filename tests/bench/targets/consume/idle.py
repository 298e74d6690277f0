"""What a worker costs Redis that has nothing to do."""

from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic, sleep
from typing import Any, NamedTuple

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.servers import main_thread_s
from tests.bench.targets.consume.kinds import BRPOP, STOCK, TAKE, Bench, Kind, bench
from tests.bench.targets.report import Figure
from tests.bench.targets.worker import answers

#: Numbers of queues that a worker consumes.
FEW, MANY = 1, 8
#: How long workers are left alone before they are watched, and watched, in s.
SETTLE_S, WATCH_S = 3.0, 12.0


class Cost(NamedTuple):
    """Commands a second, those of scripts included, and CPU time of Redis's main thread in % of a core."""

    commands: float
    cpu: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Watches workers of each kind at the same time, each with a Redis of its own."""
    watch_s = WATCH_S / 3 if quick else WATCH_S
    found = _costs(watch_s)
    note = f"{watch_s:.0f} s, threads, all workers at the same time; the calls of scripts count as commands"
    stock = found[STOCK, FEW]
    for kind in (TAKE, BRPOP):
        target, name = 1.0 if kind is TAKE else None, f"idle, {FEW} queue, Redis CPU, {kind.name} / stock"
        yield Figure(name, found[kind, FEW].cpu / stock.cpu, "", target, note=note)
    for kind in (STOCK, TAKE, BRPOP):
        more = (found[kind, MANY].commands - found[kind, FEW].commands) / (MANY - FEW)
        yield Figure(f"idle, commands for each further queue, {kind.name}", more, "/s", 1.0 if kind is TAKE else None)
    for (kind, count), cost in found.items():
        yield Figure(f"idle, {count} queues, commands, {kind.name}", cost.commands, "cmd/s")
        yield Figure(f"idle, {count} queues, Redis CPU, {kind.name}", cost.cpu, "% of a core")


def _costs(watch_s: float) -> dict[tuple[Kind, int], Cost]:
    """Returns what workers of each kind cost, by kind and number of queues."""
    with ExitStack() as opened:
        started: dict[tuple[Kind, int], Bench] = {}
        for count in (FEW, MANY):
            for kind in (STOCK, TAKE, BRPOP):
                one = started[kind, count] = opened.enter_context(bench(kind))
                queues = [f"bench{number}" for number in range(count)]
                opened.enter_context(one.worker("--pool", "threads", queues=queues))
        for one in started.values():
            answers(one.server.url)
        sleep(SETTLE_S)
        before, begun = [_seen(one.server.client()) for one in started.values()], monotonic()
        sleep(watch_s)
        after, took_s = [_seen(one.server.client()) for one in started.values()], monotonic() - begun
    return {
        key: Cost((later[0] - earlier[0]) / took_s, (later[1] - earlier[1]) / took_s * 100)
        for key, earlier, later in zip(started, before, after, strict=True)
    }


def _seen(client: Any) -> tuple[int, float]:
    """Returns the number of commands until now, and the CPU time in s."""
    with client:
        return int(client.info("stats")["total_commands_processed"]), main_thread_s(client)
