"""How fast messages that are due move to their queue, at what cost, and whether a large backlog slows that down."""

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore
from tests.bench.servers import main_thread_s
from tests.bench.targets.blocks import blocks
from tests.bench.targets.load import QUEUE, fill, make_store, one_after_the_other, within_the_last_hour
from tests.bench.targets.report import Figure

#: The most CPU time of Redis that a message may take, in µs, in the default form.
CPU_US = 8
#: Bound of the backup list: SHARE entries for each that waits, and MORE entries. Source: docs/design/redisson-form.md.
SHARE, MORE = 1.5, 1000


class Run(NamedTuple):
    """What one transfer of a whole backlog took.

    Attributes:
        per_s: Messages moved a second.
        redis_us: CPU time of Redis's main thread for a message.
        longest_ms: The longest script call, by the clock on the wall.
        longest_cpu_ms: The most CPU time that Redis took for one call, and for the measuring of it.
        fullest: The greatest length of the backup list divided by its bound; 0 where there is no list.
    """

    per_s: float
    redis_us: float
    longest_ms: float
    longest_cpu_ms: float
    fullest: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Moves small backlogs and large ones, all of them due, the forms in turn."""
    small, middle, large = (2_000, 20_000, 100_000) if quick else (10_000, 200_000, 1_000_000)
    # A small backlog is moved in less than 0.1 s, so one run says little.
    times = {small: 5 if quick else 15, middle: 1 if quick else 2, large: 1}
    runs = {count: _in_turn(count, within_the_last_hour, often) for count, often in times.items()}
    even = _in_turn(middle, one_after_the_other, times[middle])
    for form, target, target_even in (("hash", 80_000, None), ("list", 20_000, 50_000)):
        of = {count: by_form[form] for count, by_form in runs.items()}
        rates = {count: median(run.per_s for run in found) for count, found in of.items()}
        often = ", ".join(f"{number} of {count:,}" for count, number in times.items())
        name, note = f"transfer, {form}", f"medians of runs, {often}; due times random over an hour"
        yield Figure(f"{name}, {large:,} waiting", rates[large], "msg/s", target, True, note)
        yield Figure(f"{name}, {middle:,} waiting", rates[middle], "msg/s", target if form == "list" else None, True)
        yield Figure(f"{name}, {small:,} waiting", rates[small], "msg/s")
        if form == "hash":
            yield Figure(f"{name}, rate at {large:,} / at {small:,}", rates[large] / rates[small], "", 0.7, True)
        value = median(run.per_s for run in even[form])
        yield Figure(f"{name}, {middle:,} waiting, one constant delay", value, "msg/s", target_even, True)
        yield from _in_redis(name, [*of[large], *of[middle], *even[form]], of)
    yield from blocks(quick)


def _in_redis(name: str, runs: list[Run], of: dict[int, list[Run]]) -> Iterator[Figure]:
    longest = ", ".join(f"{run.longest_ms:.1f}" for run in runs)
    note = f"of each run: {longest} ms; wall clock, so it includes what other processes take of the core"
    yield Figure(f"{name}, longest script call (SLOWLOG)", max(run.longest_ms for run in runs), "ms", 10, note=note)
    longest_cpu_ms = max(run.longest_cpu_ms for run in runs)
    yield Figure(
        f"{name}, longest script call, CPU time", longest_cpu_ms, "ms", 5, note="INFO cpu, Redis's main thread"
    )
    for count, those in of.items():
        redis_us = median(run.redis_us for run in those)
        target = CPU_US if name.endswith("hash") else None
        note = "INFO cpu, Redis's main thread, calls and what is asked about them"
        yield Figure(f"{name}, Redis CPU a message, {count:,} waiting", redis_us, "µs", target, note=note)
    fullest = max(run.fullest for run in runs)
    if fullest:
        note = f"the longest of all runs, after each call; the bound is {SHARE} times what waits and {MORE:,}"
        yield Figure(f"{name}, length of the backup list / its bound", fullest, "", 1, note=note)


def _in_turn(count: int, due_ms: Callable[[], Callable[[], float]], times: int) -> dict[str, list[Run]]:
    """Runs the forms in turn. Returns the runs of each form."""
    runs: dict[str, list[Run]] = {form: [] for form in BACKUPS}
    for _ in range(times):
        for form, done in runs.items():
            # A new server: after a gigabyte was deleted, a server is busy for a while freeing the memory.
            with PrivateRedis() as server:
                store = make_store(redis.Redis(port=server.port), form)
                fill(store, count, due_ms())
                done.append(transfer_all(store, count))
    return runs


def transfer_all(store: DelayStore, count: int) -> Run:
    """Transfers all messages of a store, of which there are ``count``."""
    client: Any = store.client
    client.config_set("slowlog-log-slower-than", 1000)
    client.config_set("slowlog-max-len", 100_000)
    client.slowlog_reset()
    took_s, moved, fullest, longest_cpu_s, before_s = 0.0, 0, 0.0, 0.0, main_thread_s(client)
    first_s = before_s
    while moved < count:
        start = perf_counter()
        done = store.delivery.transfer(QUEUE)
        took_s += perf_counter() - start
        if not done.moved:
            raise RuntimeError(f"{moved} of {count} messages were moved, {client.llen(QUEUE)} are in the queue")
        moved += done.moved
        after_s = main_thread_s(client)
        longest_cpu_s, before_s = max(longest_cpu_s, after_s - before_s), after_s
        if store.backup == "list":
            length = client.llen(store.keys.listed(QUEUE))
            fullest = max(fullest, length / (SHARE * (count - moved) + MORE))
    if client.llen(QUEUE) != count:
        raise RuntimeError(f"{client.llen(QUEUE)} of {count} messages are in the queue")
    longest_us = max((entry["duration"] for entry in client.slowlog_get(100_000)), default=0)
    return Run(count / took_s, (before_s - first_s) / count * 1e6, longest_us / 1000, longest_cpu_s * 1000, fullest)
