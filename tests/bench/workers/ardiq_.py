"""ArdiQ."""

import asyncio
import os

from ardiq import Ardiq

from tests.bench.journal import arrive

app = Ardiq(redis_url=os.environ["BENCH_SERVER"], concurrency=10)


@app.task()
def begin(payload: str) -> None:
    """Notes that it begins."""
    arrive(0.0)


@app.task()
async def begin_async(payload: str) -> None:
    """Notes that it begins, in the event loop."""
    arrive(0.0)


async def _fill(count: int) -> None:
    task = begin_async if os.environ.get("BENCH_ASYNC") else begin
    for _ in range(count // 100):
        await app.enqueue_many([task.prepare("x" * 100) for _ in range(100)])


def fill(count: int) -> None:
    """Enqueues tasks."""
    asyncio.run(_fill(count))
