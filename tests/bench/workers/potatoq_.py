"""potatoq."""

import os

from potatoq import Potatoq

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD, paced

app = Potatoq("bench", broker=os.environ["BENCH_SERVER"])


@app.task
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count):
        begin.delay(0.0, PAYLOAD)


def trickle(count: int) -> None:
    """Enqueues tasks one by one, with pauses."""
    for due in paced(count):
        begin.delay(due, PAYLOAD)
