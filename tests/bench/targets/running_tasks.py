"""An ordinary Celery app with tasks that look whether they are to stop, and with coroutines, in three ways."""

import asyncio
import os
import sys
from functools import cache
from time import perf_counter
from typing import Any

import httpx2
from celery import Celery

from celery_ext import cancelled
from tests.bench.targets.app import BROKER, OURS
from tests.support import ROOT

sys.path.append(str(ROOT / "docs/examples/coroutines"))
from loop import in_loop  # type: ignore[import-not-found]

app = Celery("running", broker=os.environ.get(BROKER), backend=os.environ.get(BROKER), set_as_current=False)
app.conf.broker_transport = OURS


@app.task
def look(count: int) -> tuple[float, float]:
    """Looks so often. Returns what the first look took, and each of the others, in µs."""
    begun = perf_counter()
    cancelled()
    first = perf_counter()
    for _ in range(count):
        cancelled()
    return (first - begun) * 1e6, (perf_counter() - first) / count * 1e6


@cache
def client(kind: Any) -> Any:
    """Returns the client of this process."""
    return kind(timeout=60, limits=httpx2.Limits(max_connections=200))


@app.task(ignore_result=True)
@in_loop
async def fetch_in_loop(url: str) -> None:
    """Fetches in the loop of the process, over connections that stay."""
    (await client(httpx2.AsyncClient).get(url)).raise_for_status()


@app.task(ignore_result=True)
def fetch_in_own_loop(url: str) -> None:
    """Fetches in a loop of its own, with a client of its own."""

    async def fetch() -> None:
        async with httpx2.AsyncClient(timeout=60) as own:
            (await own.get(url)).raise_for_status()

    asyncio.run(fetch())


@app.task(ignore_result=True)
def fetch(url: str) -> None:
    """Fetches without a loop, over connections that stay."""
    client(httpx2.Client).get(url).raise_for_status()
