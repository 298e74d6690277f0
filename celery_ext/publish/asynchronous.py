"""Sends tasks from asyncio: one, or many calls of one task. Each call runs in a thread of its app."""

import asyncio
import os
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakKeyDictionary

from kombu.log import get_logger

from celery_ext.publish.recipe import Call
from celery_ext.publish.send_many import send_many
from celery_ext.typing import CallOptions, SharedOptions
from kombu_delayq.message.once import Once
from kombu_delayq.publish_batch import MAX_OFFERS

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult

logger = get_logger(__name__)

T = TypeVar("T")

#: Threads of an app whose setting ``broker_pool_limit`` is 0 or None, which both mean any number of connections.
THREADS = 10

_executors: WeakKeyDictionary[Any, ThreadPoolExecutor] = WeakKeyDictionary()
_lock = Lock()


class Abandoned(Exception):
    """Ends a call in a thread between two steps, because nobody waits for it any more."""


async def in_thread(app: "Celery[Any]", call: Callable[[], T]) -> T:
    """Runs a call in a thread of an app, with the context variables of the caller.

    An app has as many threads as its pool has connections, so that no thread only waits for a connection. They are not
    those of ``asyncio.to_thread``: a broker that is away holds up nothing else.

    If the caller is cancelled, a call that has no thread yet is never made. One that has goes on to its end; if it
    fails then, that is logged.
    """
    future = _submit(app, call)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancel():
            future.add_done_callback(_log_failure)
        raise


class Loop:
    """The event loop of a caller, as a thread sees it. The thread waits for what it asks of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = Event()
        self._asked: Future[Any] | None = None

    def leave(self) -> None:
        """Ends the call in the thread at its next step, and cancels what it has asked of the loop."""
        self._left.set()
        if self._asked is not None:
            self._asked.cancel()

    def is_left(self) -> bool:
        """Whether nobody waits for the call any more."""
        return self._left.is_set()

    def check(self) -> None:
        """Raises Abandoned if nobody waits for the call any more."""
        if self.is_left():
            raise Abandoned

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs an async function in the loop, and returns its result to the thread.

        Raises:
            Abandoned: Nobody waits for the call any more. The function is not called then.
        """

        async def unless_left() -> T:
            self.check()  # the caller leaves in this loop, so it cannot do so between this and the call
            return await work()

        self.check()
        asking = unless_left()
        try:
            asked = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # the loop is closed
            asking.close()
            raise Abandoned from None
        self._asked = asked
        if self.is_left():
            asked.cancel()
        try:
            return asked.result()
        except CancelledError:
            raise Abandoned from None

    def tell(self, listener: Callable[..., Awaitable[object] | object], *news: Any) -> None:
        """Calls a listener in the loop, and awaits what it returns if that can be awaited.

        Raises:
            Abandoned: Nobody waits for the call any more. The listener is not called then.
        """

        async def call() -> None:
            answer = listener(*news)
            if isawaitable(answer):
                await answer

        self.run(call)


async def asend(
    app: "Celery[Any]",
    task: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[CallOptions],
) -> "AsyncResult[Any]":
    """Sends a task, as ``apply_async`` does.

    Args:
        app: The app that sends it.
        task: A task or a signature, or the name of any task.
        args: Positional arguments.
        kwargs: Keyword arguments.
        **options: Options of ``apply_async``, such as ``countdown``, ``eta``, ``queue`` or ``delay_chain``.

    Returns:
        The result. Its ``get`` blocks, so do not call it in an event loop.

    Raises:
        DelayTooLong: The transport option ``max_delay`` does not allow the delay.
        kombu.exceptions.OperationalError: The broker has not answered for as long as ``apply_async`` would try.
    """
    send = partial(app.send_task, task) if isinstance(task, str) else task.apply_async
    result: AsyncResult[Any] = await in_thread(app, partial(send, args, kwargs, **options))
    return result


async def asend_many(
    app: "Celery[Any]",
    task: Any,
    calls: Iterable[Call] | AsyncIterable[Call],
    *,
    on_sent: Callable[[list[str]], Awaitable[object] | object] | None = None,
    on_outcomes: Callable[[list[tuple[str, Once]]], Awaitable[object] | object] | None = None,
    **options: Unpack[SharedOptions],
) -> int:
    """Sends many calls of a task; arguments, result and errors are those of ``send_many``.

    If the caller is cancelled, it sends the calls that it has read, at most two pages, and no further ones. It does not
    call ``on_sent`` or ``on_outcomes`` any more.

    Args:
        app: Any app.
        task: A task of the app, or the name of any task.
        calls: The arguments, due time and task id of every call. An async iterable is read in the event loop, up to 200
            calls at a time; any other in a thread.
        on_sent: Called in the event loop after each page with its task ids, and awaited if it returns an awaitable. The
            next page waits for that.
        on_outcomes: The same with what became of each call, as of ``send_many``.
        **options: Options of ``apply_async`` for all calls.
    """
    loop = Loop()
    from_loop = _from_loop(loop, aiter(calls)) if isinstance(calls, AsyncIterable) else calls
    told: dict[str, Any] = {
        name: partial(loop.tell, listener)
        for name, listener in (("on_sent", on_sent), ("on_outcomes", on_outcomes))
        if listener is not None
    }
    try:
        return await in_thread(app, partial(send_many, app, task, _checked(loop, from_loop), **told, **options))
    finally:
        loop.leave()


def _checked(loop: Loop, calls: Iterable[Call]) -> Iterator[Call]:
    """Yields calls, in a thread, until nobody waits for them any more."""
    for call in calls:
        loop.check()
        yield call


def _from_loop(loop: Loop, calls: AsyncIterator[T]) -> Iterator[T]:
    """Yields what an async iterator yields, in a thread; a page at a time, because each way to the loop takes long."""

    async def page() -> list[T]:
        found: list[T] = []
        while len(found) < MAX_OFFERS:
            try:
                found.append(await anext(calls))
            except StopAsyncIteration:
                break
        return found

    while found := loop.run(page):
        yield from found


async def aclose(app: "Celery[Any]") -> None:
    """Waits for the calls of an app that are still under way in threads, and ends its threads.

    It is for the end of a server, such as the lifespan of FastAPI. A later call makes new threads. The connections stay
    in the pools of the process.
    """
    with _lock:
        executor = _executors.pop(_actual(app), None)
    if executor is not None:
        await asyncio.to_thread(executor.shutdown)


def _submit(app: "Celery[Any]", call: Callable[[], T]) -> "Future[T]":
    key = _actual(app)
    with _lock:
        executor = _executors.get(key)
        if executor is None:
            threads = app.conf.broker_pool_limit or THREADS
            executor = _executors[key] = ThreadPoolExecutor(threads, thread_name_prefix="delayq-async")
        submitted: Future[T] = executor.submit(copy_context().run, call)
        return submitted


def _actual(app: Any) -> Any:
    """Returns the app behind a proxy, such as ``current_app``."""
    return getattr(app, "_get_current_object", lambda: app)()


def _log_failure(future: "Future[Any]") -> None:
    error = future.exception()
    if error is not None and not isinstance(error, Abandoned):
        logger.warning("a call whose await was cancelled failed later: %r", error)


def _forget_threads() -> None:
    """In a process that was forked: its parent's threads are not here."""
    global _lock
    _lock = Lock()
    _executors.clear()


os.register_at_fork(after_in_child=_forget_threads)
