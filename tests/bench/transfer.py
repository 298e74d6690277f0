"""How fast messages that are due move to their queue, and whether a large backlog slows that down."""

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import redis

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.bench.load import QUEUE, fill, within_the_last_hour
from tests.bench.report import Figure

SMALL = 10_000
REPEATS = 15


class Run(NamedTuple):
    """What one transfer of a whole backlog took."""

    per_s: float
    redis_us: float
    longest_ms: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Moves a small backlog several times and a large one once, all of it due."""
    large = 100_000 if quick else 1_000_000
    few = [_run(server, SMALL) for _ in range(5 if quick else REPEATS)]
    small_per_s = median(run.per_s for run in few)
    many = _run(server, large)
    bodies = "bodies of 1,000 bytes, due times random over an hour"
    yield Figure(f"transfer, {large:,} waiting", many.per_s, "msg/s", 80_000, at_least=True, note=bodies)
    yield Figure(f"transfer, {SMALL:,} waiting", small_per_s, "msg/s", note=f"median of {len(few)}, {bodies}")
    yield Figure(f"transfer, rate at {large:,} / at {SMALL:,}", many.per_s / small_per_s, "", 0.7, at_least=True)
    yield Figure("transfer, longest script call (SLOWLOG)", many.longest_ms, "ms", 10)
    yield Figure(f"transfer, Redis CPU a message, {large:,} waiting", many.redis_us, "µs", note="commandstats")


def _run(server: PrivateRedis, count: int) -> Run:
    client: Any = redis.Redis(port=server.port)
    client.flushall()
    store = DelayStore(client)
    fill(store, count, within_the_last_hour())
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("slowlog-max-len", 100_000)
    client.config_resetstat()
    client.slowlog_reset()
    start = perf_counter()
    moved = 0
    while (done := store.transfer(QUEUE)).lateness_ms:
        moved += len(done.lateness_ms)
    took_s = perf_counter() - start
    if not moved == count == client.llen(QUEUE):
        raise RuntimeError(f"{moved} of {count} messages were moved, {client.llen(QUEUE)} are in the queue")
    stats = client.info("commandstats")
    script_us = sum(stats.get(name, {"usec": 0})["usec"] for name in ("cmdstat_evalsha", "cmdstat_eval"))
    longest_us = max((entry["duration"] for entry in client.slowlog_get(100_000)), default=0)
    return Run(count / took_s, script_us / count, longest_us / 1000)
