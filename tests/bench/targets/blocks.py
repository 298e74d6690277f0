"""How long one call of the transfer script keeps Redis busy, with messages of each size."""

import random
from collections.abc import Callable, Iterator

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import BACKUPS
from kombu_delayq.store import DelayStore
from tests.bench.servers import main_thread_s
from tests.bench.targets.load import QUEUE, fill, make_store, within_the_last_hour
from tests.bench.targets.report import Figure

#: The most CPU time of Redis for one call, in ms.
BLOCK_MS = 5
SIZES = (800, 1_000, 10_000, 100_000, 1_000_000)
#: Bytes that wait, and most messages.
BYTES, MOST = 50_000_000, 10_000


def blocks(quick: bool) -> Iterator[Figure]:
    """Moves messages of each size in turn, then of all sizes mixed, in both forms."""
    share = 4 if quick else 1
    cases: list[tuple[str, int, Callable[[], int]]] = [
        (f"{size:,} bytes", min(BYTES // size, MOST) // share, lambda size=size: size)  # type: ignore[misc]
        for size in SIZES
    ]
    cases.append(("mixed sizes", 400 // share, lambda: random.choice(SIZES)))
    for form in BACKUPS:
        for name, count, size in cases:
            with PrivateRedis() as server:
                store = make_store(redis.Redis(port=server.port), form)
                due_ms = within_the_last_hour()
                for _ in range(count):
                    fill(store, 1, due_ms, size)
                took_ms = _calls_ms(store, count)
            note = f"INFO cpu, Redis's main thread; {len(took_ms)} calls, median {took_ms[len(took_ms) // 2]:.2f} ms"
            yield Figure(f"transfer, {form}, longest call, {name}", took_ms[-1], "ms", BLOCK_MS, note=note)


def _calls_ms(store: DelayStore, count: int) -> list[float]:
    """Transfers all messages. Returns the CPU time of each call in ms, the shortest first."""
    took_ms, moved, before_s = [], 0, main_thread_s(store.client)
    while moved < count:
        moved += store.delivery.transfer(QUEUE).moved
        after_s = main_thread_s(store.client)
        took_ms.append((after_s - before_s) * 1000)
        before_s = after_s
    return sorted(took_ms)
