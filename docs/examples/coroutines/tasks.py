"""Tasks that are coroutines, with an HTTP client that lives in the loop."""

import os
from functools import cache

import httpx
from celery import Celery
from loop import in_loop

app = Celery("tasks", broker=os.environ.get("BROKER_URL", "delayq://localhost:6379/0"))


@cache
def client() -> httpx.AsyncClient:
    """Returns the client of this process. Only coroutines of the loop call it: its connections belong to the loop."""
    return httpx.AsyncClient(timeout=10, limits=httpx.Limits(max_connections=200))


@app.task(acks_late=True, autoretry_for=(httpx.HTTPError,), max_retries=3)
@in_loop
async def fetch(url: str) -> int:
    """Fetches a page; returns its length."""
    response = await client().get(url)
    response.raise_for_status()
    return len(response.content)
