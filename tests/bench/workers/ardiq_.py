"""ArdiQ."""

import asyncio
import os
from typing import Any

from ardiq import Ardiq

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD, paced

app = Ardiq(redis_url=os.environ["BENCH_SERVER"], concurrency=10)


@app.task()
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


@app.task()
async def begin_async(due: float, payload: str) -> None:
    """Notes that it begins, in the event loop."""
    arrive(due)


async def _fill(count: int) -> None:
    for _ in range(count // 100):
        await app.enqueue_many([_task().prepare(0.0, PAYLOAD) for _ in range(100)])


async def _trickle(count: int) -> None:
    for due in paced(count):
        await app.enqueue_many([_task().prepare(due, PAYLOAD)])


def _task() -> Any:
    return begin_async if os.environ.get("BENCH_ASYNC") else begin


def fill(count: int) -> None:
    """Enqueues tasks."""
    asyncio.run(_fill(count))


def trickle(count: int) -> None:
    """Enqueues tasks one by one, with pauses."""
    asyncio.run(_trickle(count))
