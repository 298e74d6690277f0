"""What a waiting message costs in Redis's memory."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import redis

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from tests.bench.load import BODY_BYTES, fill, make_store, within_the_next_hour
from tests.bench.report import Figure

#: In bytes a message. Redisson's form has each message twice.
TARGETS = {"hash": 1300, "list": None}


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Fills the store and looks at used_memory."""
    allocator = redis.Redis(port=server.port).info("memory")["mem_allocator"]  # type: ignore[index]
    note = f"used_memory, {allocator}" + ("" if "jemalloc" in allocator else ": the target is for jemalloc")
    few, many = (10_000, 100_000) if quick else (100_000, 1_000_000)
    for form in BACKUPS:
        for count in (few, many) if form == "hash" else (few,):
            value = _bytes_each(server, form, count, lambda: BODY_BYTES)
            name = f"memory, {form}, {count:,} waiting, messages of 1,000 bytes"
            yield Figure(name, value, "B/msg", TARGETS[form], note=note)
        value = _bytes_each(server, form, few, lambda: random.randint(800, 1200))
        spread = "allocators round up in steps of about 20 %, which a single size does not show"
        yield Figure(f"memory, {form}, {few:,} waiting, 800 to 1,200 bytes", value, "B/msg", note=spread)


def _bytes_each(server: PrivateRedis, form: str, count: int, size: Callable[[], int]) -> float:
    client: Any = redis.Redis(port=server.port)
    client.flushall()
    before = client.info("memory")["used_memory"]
    fill(make_store(client, form), count, within_the_next_hour(), size)
    return float(client.info("memory")["used_memory"] - before) / count
