"""potatoq."""

import os
from collections.abc import Sequence

from potatoq import Potatoq

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD

app = Potatoq("bench", broker=os.environ["BENCH_SERVER"])


@app.task
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


def send(dues: Sequence[float]) -> None:
    """Enqueues tasks."""
    for due in dues:
        begin.delay(due, PAYLOAD)
