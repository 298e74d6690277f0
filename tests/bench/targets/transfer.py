"""How fast messages that are due move to their queue, at what cost, and what a waiting message takes."""

import random
from collections.abc import Iterator
from statistics import median
from time import perf_counter, time
from typing import Any, NamedTuple
from uuid import uuid4

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import LAYOUTS, Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.bench.servers import main_thread_s
from tests.bench.targets.report import Figure

QUEUE = "bench"
BODY_BYTES = 1000
HOUR_MS = 3_600_000
PER_CALL = 200

#: As Celery writes a task.
_MESSAGE = (
    '{"body": "%(body)s", "content-encoding": "utf-8", "content-type": "application/json", "headers": {"lang": "py", '
    '"task": "bench.arrive", "id": "%(id)s", "shadow": null, "eta": "2026-11-21T15:04:05.123456+00:00", '
    '"expires": null, "group": null, "group_index": null, "retries": 0, "timelimit": [null, null], '
    '"root_id": "%(id)s", "parent_id": null, "argsrepr": "()", "kwargsrepr": "{}", "origin": "gen1@bench", '
    '"ignore_result": false, "stamped_headers": null, "stamps": {}}, "properties": {"correlation_id": "%(id)s", '
    '"delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "bench"}, "priority": 0, '
    '"body_encoding": "base64", "delivery_tag": "%(id)s"}}'
)
_FIXED_BYTES = len(_MESSAGE % {"id": "", "body": ""})
#: The least rate, and the most CPU time of Redis for a message in µs, in each layout.
TARGETS = {LAYOUTS[0]: (80_000, 8), LAYOUTS[1]: (20_000, None)}


class Run(NamedTuple):
    """What one transfer of a whole backlog took.

    Attributes:
        bytes: Memory of a message that waits.
        per_s: Messages moved a second.
        redis_us: CPU time of Redis's main thread for a message.
        longest_ms: The most CPU time that Redis took for one call, and for the measuring of it.
    """

    bytes: float
    per_s: float
    redis_us: float
    longest_ms: float


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Moves small backlogs and large ones, all of them due, in each layout."""
    sizes = {2_000: 3, 20_000: 1} if quick else {10_000: 9, 200_000: 2, 1_000_000: 1}
    for layout, (rate, cpu_us) in TARGETS.items():
        found = []
        for count, times in sizes.items():
            # A new server: after a gigabyte was deleted, a server is busy for a while freeing the memory.
            runs = [_run(layout, count) for _ in range(times)]
            name, note = f"transfer, {layout}, {count:,} waiting", f"median of {times}; due times random over an hour"
            found.append(median(run.redis_us for run in runs))
            yield Figure(name, median(run.per_s for run in runs), "msg/s", rate, True, note)
            yield Figure(f"{name}, CPU time of Redis", median(run.redis_us for run in runs), "µs/msg", cpu_us)
            yield Figure(f"{name}, longest call, CPU time", max(run.longest_ms for run in runs), "ms", 5)
            yield Figure(f"{name}, memory", median(run.bytes for run in runs), "bytes/msg")
        most, least = max(sizes), sorted(sizes)[-2]
        name = f"transfer, {layout}, {most:,} waiting : {least:,}, messages for a CPU second of Redis"
        yield Figure(name, found[-2] / found[-1], "", None if quick else 0.7, True)
    yield Figure("memory of the same message in stock Celery's list", _listed(min(sizes)), "bytes/msg")


def _run(layout: str, count: int) -> Run:
    with PrivateRedis() as server:
        store = make_store(redis.Redis(port=server.port), layout)
        try:
            return transfer_all(store, count)
        finally:
            store.close()


def transfer_all(store: DelayStore, count: int) -> Run:
    """Fills an empty store with messages that are due, and transfers all of them."""
    client: Any = store.client
    empty = client.info("memory")["used_memory"]
    fill(store, count)
    kept = (client.info("memory")["used_memory"] - empty) / count
    took_s, redis_s, longest_s = drain(store, count)
    return Run(kept, count / took_s, redis_s / count * 1e6, longest_s * 1000)


def drain(store: DelayStore, count: int, queue: str = QUEUE) -> tuple[float, float, float]:
    """Transfers messages that are due.

    Returns:
        How long that took, the CPU time of Redis's main thread, and the most of it for one call, all in s.
    """
    client: Any = store.client
    took_s, moved, longest_s, before_s = 0.0, 0, 0.0, main_thread_s(client)
    first_s = before_s
    while moved < count:
        start = perf_counter()
        done = store.delivery.transfer(queue).moved
        took_s += perf_counter() - start
        if not done:
            raise RuntimeError(f"{moved} of {count} messages were moved, {client.llen(queue)} are in the queue")
        moved += done
        after_s = main_thread_s(client)
        longest_s, before_s = max(longest_s, after_s - before_s), after_s
    return took_s, before_s - first_s, longest_s


def _listed(count: int) -> float:
    """Returns the bytes that a message takes which stock Celery has in its queue."""
    with PrivateRedis() as server:
        client: Any = server.client()
        empty = client.info("memory")["used_memory"]
        for start in range(0, count, PER_CALL):
            client.lpush(QUEUE, *[message(f"{number:036}") for number in range(start, start + PER_CALL)])
        return float(client.info("memory")["used_memory"] - empty) / count


def message(task_id: str) -> str:
    """Returns a task message of ``BODY_BYTES`` bytes, as it is pushed to its queue."""
    return _MESSAGE % {"id": task_id, "body": "x" * (BODY_BYTES - _FIXED_BYTES - 4 * len(task_id))}


def make_store(client: Any, layout: str) -> DelayStore:
    """Makes a store that keeps messages in a layout."""
    return DelayStore(client, options=Options(layout=layout))


def fill(store: DelayStore, count: int, queue: str = QUEUE, first_s: float = -3600) -> None:
    """Offers messages with UUIDs as ids, as tasks have. Their due times are random in an hour, ``first_s`` from now."""
    first_ms = (time() + first_s) * 1000
    for start in range(0, count, PER_CALL):
        ids = [str(uuid4()) for _ in range(min(PER_CALL, count - start))]
        offers = [Offer(each, repr(first_ms + random.random() * HOUR_MS), 0, message(each)) for each in ids]
        store.delivery.offer(queue, *offers)
