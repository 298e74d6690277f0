"""Messages of 1 KB in the store, many a call."""

import random
from collections.abc import Callable
from time import time
from uuid import uuid4

from kombu_delayq.results import Offer
from kombu_delayq.store import DelayStore

QUEUE = "bench"
BODY_BYTES = 1000
HOUR_MS = 3_600_000
PER_CALL = 200


def fill(
    store: DelayStore, count: int, due_ms: Callable[[], float], size: Callable[[], int] = lambda: BODY_BYTES
) -> None:
    """Offers messages with UUIDs as ids, as tasks have.

    Args:
        store: Where to.
        count: How many.
        due_ms: Gives the due time of each, ms since the epoch.
        size: Gives the length of each body in bytes, as it will be pushed to its queue.
    """
    for start in range(0, count, PER_CALL):
        calls = range(min(PER_CALL, count - start))
        store.offer(QUEUE, *[Offer(str(uuid4()), repr(due_ms()), 0, "x" * size()) for _ in calls])


def within_the_last_hour() -> Callable[[], float]:
    """Returns due times that are all past, random over an hour."""
    now_ms = time() * 1000
    return lambda: now_ms - random.random() * HOUR_MS


def within_the_next_hour() -> Callable[[], float]:
    """Returns due times random over an hour, the first in a minute."""
    now_ms = time() * 1000 + 60_000
    return lambda: now_ms + random.random() * HOUR_MS
