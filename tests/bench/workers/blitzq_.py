"""BlitzQ in its reliable mode."""

import os

from blitzq import Queue

from tests.bench.journal import arrive

app = Queue(redis_url=os.environ["BENCH_SERVER"])


@app.task
def begin(payload: str) -> None:
    """Notes that it begins."""
    arrive(0.0)


@app.task
async def begin_async(payload: str) -> None:
    """Notes that it begins, in the event loop."""
    arrive(0.0)


def fill(count: int) -> None:
    """Enqueues tasks."""
    task = begin_async if os.environ.get("BENCH_ASYNC") else begin
    for _ in range(count // 100):
        task.enqueue_many_sync([("x" * 100,)] * 100)
