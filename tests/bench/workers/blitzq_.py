"""BlitzQ in its reliable mode."""

import os
from typing import Any

from blitzq import Queue

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD, paced

app = Queue(redis_url=os.environ["BENCH_SERVER"])


@app.task
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


@app.task
async def begin_async(due: float, payload: str) -> None:
    """Notes that it begins, in the event loop."""
    arrive(due)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count // 100):
        _task().enqueue_many_sync([(0.0, PAYLOAD)] * 100)


def trickle(count: int) -> None:
    """Enqueues tasks one by one, with pauses."""
    for due in paced(count):
        _task().enqueue_many_sync([(due, PAYLOAD)])


def _task() -> Any:
    return begin_async if os.environ.get("BENCH_ASYNC") else begin
