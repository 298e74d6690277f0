"""Reads and changes the waiting tasks of an app from asyncio."""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from celery_ext.asynchronous.threads import in_thread
from celery_ext.waiting import control
from celery_ext.waiting.by_id import PAGE, Outcome
from celery_ext.waiting.control import TaskId
from celery_ext.waiting.delayed_task import DelayedTask

if TYPE_CHECKING:
    from celery import Celery


@overload
async def acancel(app: "Celery[Any]", task_id: TaskId) -> Outcome: ...
@overload
async def acancel(app: "Celery[Any]", task_id: Iterable[TaskId]) -> dict[str, Outcome]: ...
async def acancel(app: "Celery[Any]", task_id: Any) -> Any:
    """Cancels waiting tasks; arguments, result and errors are those of ``cancel``."""
    return await in_thread(app, partial(control.cancel, app, task_id))


@overload
async def areschedule(
    app: "Celery[Any]", task_id: TaskId, *, eta: datetime | None = None, countdown: float | None = None
) -> Outcome: ...
@overload
async def areschedule(
    app: "Celery[Any]", task_id: Iterable[TaskId], *, eta: datetime | None = None, countdown: float | None = None
) -> dict[str, Outcome]: ...
async def areschedule(
    app: "Celery[Any]", task_id: Any, *, eta: datetime | None = None, countdown: float | None = None
) -> Any:
    """Changes when waiting tasks are due; arguments, result and errors are those of ``reschedule``."""
    return await in_thread(app, partial(control.reschedule, app, task_id, eta=eta, countdown=countdown))


@overload
async def arun_now(app: "Celery[Any]", task_id: TaskId) -> Outcome: ...
@overload
async def arun_now(app: "Celery[Any]", task_id: Iterable[TaskId]) -> dict[str, Outcome]: ...
async def arun_now(app: "Celery[Any]", task_id: Any) -> Any:
    """Sends waiting tasks to their queues now; arguments, result and errors are those of ``run_now``."""
    return await in_thread(app, partial(control.run_now, app, task_id))


@overload
async def aget(app: "Celery[Any]", task_id: TaskId) -> DelayedTask | None: ...
@overload
async def aget(app: "Celery[Any]", task_id: Iterable[TaskId]) -> dict[str, DelayedTask | None]: ...
async def aget(app: "Celery[Any]", task_id: Any) -> Any:
    """Returns a waiting task, or None; arguments and result are those of ``get``."""
    return await in_thread(app, partial(control.get, app, task_id))


async def abrowse(
    app: "Celery[Any]",
    queue: str | None = None,
    *,
    due_after: datetime | None = None,
    due_before: datetime | None = None,
    limit: int | None = None,
) -> AsyncIterator[DelayedTask]:
    """Yields waiting tasks in the order of their due times; arguments are those of ``browse``."""
    tasks = control.browse(app, queue, due_after=due_after, due_before=due_before, limit=limit)
    while page := await in_thread(app, lambda: list(islice(tasks, PAGE))):
        for task in page:
            yield task


async def acount(
    app: "Celery[Any]",
    queue: str | None = None,
    *,
    due_after: datetime | None = None,
    due_before: datetime | None = None,
) -> int:
    """Counts waiting tasks; arguments are those of ``count``."""
    return await in_thread(app, partial(control.count, app, queue, due_after=due_after, due_before=due_before))
