"""Reminders over HTTP: ``uvicorn main:api``."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import islice
from typing import Annotated, Any
from uuid import uuid4

import tasks
from celery import Celery
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from kombu.exceptions import OperationalError
from pydantic import BaseModel, Field

import celery_ext
from celery_ext import Call, aclose, asend, asend_many
from celery_ext.serve import asgi

#: How long a request waits for Redis, in s.
PATIENCE_S = 5.0
QUEUE = "celery"


def celery_app() -> "Celery[Any]":
    """Returns the app that sends tasks. Tests put another in its place."""
    return tasks.app


App = Annotated[Celery, Depends(celery_app)]


class Wanted(BaseModel):
    """A reminder that somebody wants."""

    customer: str
    in_s: float = Field(3600, ge=0, le=366 * 86400)
    id: str = Field(default_factory=lambda: str(uuid4()), max_length=100)


class Reminder(BaseModel):
    """A reminder that waits."""

    id: str
    due: datetime


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    """Fails at the start if the broker cannot be used, and ends when no call is under way any more."""
    await asyncio.to_thread(celery_ext.select(tasks.app).count)
    yield
    await aclose(tasks.app)


api = FastAPI(lifespan=lifespan)
# Whoever reaches this server may look. "Serve" in the how-tos has logins, and what lets them change something.
api.mount("/delayq", asgi(tasks.app, anonymous=True))


@api.exception_handler(OperationalError)
async def no_broker(request: Request, error: Exception) -> JSONResponse:
    """Redis cannot be reached, or has not answered; what was asked of it may have been done or not."""
    return JSONResponse({"detail": "the broker does not answer"}, 503, {"Retry-After": "2"})


@api.exception_handler(TimeoutError)
async def slow_broker(request: Request, error: TimeoutError) -> JSONResponse:
    """Redis has not answered yet; what was asked of it goes on."""
    return JSONResponse({"detail": "the broker has not answered yet"}, 504, {"Retry-After": "2"})


@api.post("/reminders", status_code=201)
async def remind(app: App, wanted: Wanted) -> dict[str, str]:
    """Sends a reminder."""
    async with asyncio.timeout(PATIENCE_S):
        await asend(app, tasks.remind.name, (wanted.customer,), countdown=wanted.in_s, task_id=wanted.id)
    return {"id": wanted.id}


@api.post("/reminders/batch", status_code=201)
async def remind_many(app: App, wanted: list[Wanted]) -> dict[str, int]:
    """Sends many reminders, in a fraction of the time."""
    calls = (Call((each.customer,), countdown=each.in_s, task_id=each.id) for each in wanted)
    return {"sent": await asend_many(app, tasks.remind.name, calls)}


@api.get("/reminders")
async def waiting(app: App, limit: Annotated[int, Query(le=1000)] = 100) -> list[Reminder]:
    """Lists the next reminders."""
    found = await asyncio.to_thread(lambda: list(islice(celery_ext.select(app, queues=QUEUE), limit)))
    return [Reminder(id=task.id or "", due=task.due) for task in found]


@api.get("/reminders/count")
async def how_many(app: App) -> dict[str, int]:
    """Counts the reminders that wait."""
    return {"count": await asyncio.to_thread(celery_ext.select(app, queues=QUEUE).count)}


@api.get("/reminders/{task_id}")
async def find(app: App, task_id: str) -> Reminder:
    """Returns a reminder that waits."""
    task = await asyncio.to_thread(celery_ext.get, app, task_id)
    if task is None:
        raise HTTPException(404, "it does not wait")
    return Reminder(id=task_id, due=task.due)


@api.put("/reminders/{task_id}/due")
async def move(app: App, task_id: str, eta: datetime) -> dict[str, str]:
    """Moves a reminder to another time."""
    return _done(await asyncio.to_thread(celery_ext.reschedule, app, task_id, eta=eta))


@api.post("/reminders/{task_id}/run")
async def run(app: App, task_id: str) -> dict[str, str]:
    """Sends a reminder now."""
    return _done(await asyncio.to_thread(celery_ext.run_now, app, task_id))


@api.delete("/reminders/{task_id}")
async def cancel(app: App, task_id: str) -> dict[str, str]:
    """Cancels a reminder."""
    return _done(await asyncio.to_thread(celery_ext.cancel, app, task_id))


def _done(outcome: str) -> dict[str, str]:
    if outcome == "not_delayed":
        raise HTTPException(409, "it does not wait any more")
    return {"outcome": outcome}
