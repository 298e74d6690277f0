"""ArdiQ."""

import asyncio
import os
from collections.abc import Sequence

from ardiq import Ardiq

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD, THREADS

app = Ardiq(redis_url=os.environ["BENCH_SERVER"], concurrency=THREADS)
#: One event loop for all calls, as connections belong to theirs.
_runner = asyncio.Runner()


@app.task()
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


@app.task()
async def begin_async(due: float, payload: str) -> None:
    """Notes that it begins, in the event loop."""
    arrive(due)


async def _enqueue(dues: Sequence[float]) -> None:
    task = begin_async if os.environ.get("BENCH_ASYNC") else begin
    await app.enqueue_many([task.prepare(due, PAYLOAD) for due in dues])


def send(dues: Sequence[float]) -> None:
    """Enqueues tasks."""
    _runner.run(_enqueue(dues))
