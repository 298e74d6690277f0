"""BlitzQ in its reliable mode."""

import os
from collections.abc import Sequence

from blitzq import Queue

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD

app = Queue(redis_url=os.environ["BENCH_SERVER"])


@app.task
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


@app.task
async def begin_async(due: float, payload: str) -> None:
    """Notes that it begins, in the event loop."""
    arrive(due)


def send(dues: Sequence[float]) -> None:
    """Enqueues tasks."""
    task = begin_async if os.environ.get("BENCH_ASYNC") else begin
    task.enqueue_many_sync([(due, PAYLOAD) for due in dues])
