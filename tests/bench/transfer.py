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
#: It is over in less than 0.1 s, so one run says little.
SMALL_RUNS = 15
LARGE_RUNS = 3


class Run(NamedTuple):
    """What one transfer of a whole backlog took."""

    per_s: float
    redis_us: float
    longest_ms: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Moves a small backlog and a large one, all of it due."""
    large = 100_000 if quick else 1_000_000
    few = [_run(server, SMALL) for _ in range(5 if quick else SMALL_RUNS)]
    many = [_run_alone(large) for _ in range(1 if quick else LARGE_RUNS)]
    small_per_s, large_per_s = (median(run.per_s for run in runs) for runs in (few, many))
    longest_ms = max(run.longest_ms for run in many)
    redis_us = median(run.redis_us for run in many)
    bodies = f"medians of {len(many)} and {len(few)} runs, bodies of 1,000 bytes, due times random over an hour"
    yield Figure(f"transfer, {large:,} waiting", large_per_s, "msg/s", 80_000, at_least=True, note=bodies)
    yield Figure(f"transfer, {SMALL:,} waiting", small_per_s, "msg/s")
    yield Figure(f"transfer, rate at {large:,} / at {SMALL:,}", large_per_s / small_per_s, "", 0.7, at_least=True)
    each = ", ".join(f"{run.longest_ms:.1f}" for run in many)
    note = f"of each run: {each} ms; wall clock, so it includes what other processes take of the core"
    yield Figure("transfer, longest script call (SLOWLOG)", longest_ms, "ms", 10, note=note)
    yield Figure(f"transfer, Redis CPU a message, {large:,} waiting", redis_us, "µs", note="commandstats")


def _run_alone(count: int) -> Run:
    """Runs on a new server: one that has just been emptied of a gigabyte is still busy giving it back."""
    with PrivateRedis() as server:
        return _run(server, count)


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
