"""Waiting tasks of an app by queue, due time, task and arguments, from asyncio."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from celery_ext.asynchronous.threads import Loop, in_thread
from celery_ext.waiting.bulk import Outcome
from celery_ext.waiting.by_id import PAGE
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.select import Selected, select

if TYPE_CHECKING:
    from celery import Celery

#: Called in the event loop with the number of tasks that are done with, and that of all; awaited if it is async.
OnProgress = Callable[[int, int], Awaitable[object] | object]


def aselect(
    app: "Celery[Any]",
    *,
    task: str | None = None,
    queues: str | Iterable[str] | None = None,
    due_from: datetime | None = None,
    due_to: datetime | None = None,
    args: Mapping[str, Any] | None = None,
    priority: int | None = None,
) -> "AsyncSelected":
    """Returns the waiting tasks that meet all conditions; arguments and errors are those of ``select``.

    It asks Redis nothing yet, and is not awaited itself.
    """
    return AsyncSelected(
        app,
        select(app, task=task, queues=queues, due_from=due_from, due_to=due_to, args=args, priority=priority),
    )


class AsyncSelected:
    """What ``Selected`` is, for asyncio. ``async for`` yields the tasks, the next due first.

    If the caller of ``cancel``, ``reschedule`` or ``run_now`` is cancelled, the work stops at its next call of Redis.
    What is done stays done.
    """

    def __init__(self, app: "Celery[Any]", selected: Selected) -> None:
        self._app, self._selected = app, selected

    def __repr__(self) -> str:
        return f"<Async{repr(self._selected)[1:]}"

    async def count(self) -> int:
        """Counts the tasks; as ``Selected.count``."""
        return await in_thread(self._app, self._selected.count)

    async def __aiter__(self) -> AsyncIterator[DelayedTask]:
        tasks = iter(self._selected)
        while page := await in_thread(self._app, lambda: list(islice(tasks, PAGE))):
            for task in page:
                yield task

    async def cancel(self, *, progress: OnProgress | None = None) -> Counter[Outcome]:
        """Cancels the tasks; result and errors are those of ``Selected.cancel``."""
        return await self._act(self._selected.cancel, progress)

    async def reschedule(
        self, *, eta: datetime | None = None, countdown: float | None = None, progress: OnProgress | None = None
    ) -> Counter[Outcome]:
        """Makes the tasks due at another time; arguments, result and errors are those of ``Selected.reschedule``."""
        return await self._act(partial(self._selected.reschedule, eta=eta, countdown=countdown), progress)

    async def run_now(self, *, progress: OnProgress | None = None) -> Counter[Outcome]:
        """Sends the tasks to their queues now; result and errors are those of ``Selected.run_now``."""
        return await self._act(self._selected.run_now, progress)

    async def _act(self, act: Callable[..., Counter[Outcome]], progress: OnProgress | None) -> Counter[Outcome]:
        loop = Loop()
        told = {} if progress is None else {"progress": partial(loop.tell, progress)}
        try:
            return await in_thread(self._app, partial(act, stop=loop.is_left, **told))
        finally:
            loop.leave()
