"""Apps with a task that does nothing but note that it began, one for each task queue that has workers to compare."""

import os
from collections.abc import Callable, Sequence
from random import uniform
from time import sleep, time

#: What every task carries beside the time at which it is sent.
PAYLOAD = "x" * 100
#: Threads of a worker, or tasks at a time in its event loop.
THREADS = int(os.environ.get("BENCH_THREADS", "10"))
#: Between two messages to an idle worker, in s: random, because a worker that waits may do so in turns.
BETWEEN_S = (0.01, 0.06)


#: Enqueues tasks with these due times, in the way that an app has for many.
Send = Callable[[Sequence[float]], object]


def fill(send: Send, count: int) -> None:
    """Enqueues tasks, a hundred in a call."""
    for _ in range(count // 100):
        send([0.0] * 100)


def trickle(send: Send, count: int) -> None:
    """Enqueues tasks one by one, with pauses; each is due when it is sent."""
    for _ in range(count):
        sleep(uniform(*BETWEEN_S))
        send([time()])
