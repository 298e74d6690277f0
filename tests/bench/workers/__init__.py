"""Apps with a task that does nothing but note that it began, one for each task queue that has workers to compare."""

from collections.abc import Iterator
from random import uniform
from time import sleep, time

#: What every task carries beside the time at which it is sent.
PAYLOAD = "x" * 100
#: Between two messages to an idle worker, in s: random, because a worker that waits may do so in turns.
BETWEEN_S = (0.01, 0.06)


def paced(count: int) -> Iterator[float]:
    """Yields the time so many times, with pauses, as the due time of a task that is sent at once."""
    for _ in range(count):
        sleep(uniform(*BETWEEN_S))
        yield time()
