"""potatoq."""

import os

from potatoq import Potatoq

from tests.bench.journal import arrive

app = Potatoq("bench", broker=os.environ["BENCH_SERVER"])


@app.task
def begin(payload: str) -> None:
    """Notes that it begins."""
    arrive(0.0)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count):
        begin.delay("x" * 100)
