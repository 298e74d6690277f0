"""What a waiting message costs in Redis's memory."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import redis

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.bench.load import BODY_BYTES, fill, within_the_next_hour
from tests.bench.report import Figure


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Fills the store and looks at used_memory."""
    allocator = redis.Redis(port=server.port).info("memory")["mem_allocator"]  # type: ignore[index]
    note = f"used_memory, {allocator}" + ("" if "jemalloc" in allocator else ": the target is for jemalloc")
    for count in (10_000, 100_000) if quick else (100_000, 1_000_000):
        value = _bytes_each(server, count, lambda: BODY_BYTES)
        yield Figure(f"memory, {count:,} waiting, bodies of 1,000 bytes", value, "B/msg", 1300, note=note)
    count = 10_000 if quick else 100_000
    value = _bytes_each(server, count, lambda: random.randint(800, 1200))
    note = "allocators round up in steps of about 20 %, which a single size does not show"
    yield Figure(f"memory, {count:,} waiting, bodies of 800 to 1,200 bytes", value, "B/msg", note=note)


def _bytes_each(server: PrivateRedis, count: int, size: Callable[[], int]) -> float:
    client: Any = redis.Redis(port=server.port)
    client.flushall()
    before = client.info("memory")["used_memory"]
    fill(DelayStore(client), count, within_the_next_hour(), size)
    return float(client.info("memory")["used_memory"] - before) / count
