"""Sends tasks from asyncio: one, or many calls of one task. Each call runs in a thread of its app."""

import asyncio
import os
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakKeyDictionary

from celery._state import _task_stack, get_current_worker_task
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


class _Threads:
    """The threads of an app.

    Those that calls share are as many as its pool has connections, so that none of them only waits for a connection.
    They are not those of ``asyncio.to_thread``: a broker that is away holds up nothing else.
    """

    def __init__(self, app: "Celery[Any]") -> None:
        _ = app.amqp.producer_pool  # Celery makes it at its first use, which two threads at once would not survive
        self._shared = ThreadPoolExecutor(app.conf.broker_pool_limit or THREADS, thread_name_prefix="delayq-async")
        self._alone: set[ThreadPoolExecutor] = set()

    def submit(self, call: Callable[[], T], alone: bool) -> "Future[T]":
        """Runs a call in one of the threads that calls share, as soon as one is free; or alone, in a new thread."""
        if not alone:
            return self._shared.submit(call)
        executor = ThreadPoolExecutor(1, thread_name_prefix="delayq-async-alone")
        self._alone.add(executor)
        future = executor.submit(call)
        executor.submit(self._alone.discard, executor)  # not a callback: another may come after it, and log a failure
        executor.shutdown(wait=False)
        return future

    def close(self) -> None:
        """Waits for the calls that are under way, and ends the threads."""
        self._shared.shutdown()
        for executor in self._alone.copy():
            executor.shutdown()


_threads: WeakKeyDictionary[Any, _Threads] = WeakKeyDictionary()
_lock = Lock()


#: How often a thread that waits for its event loop looks whether that was closed, in s.
LOOK_S = 1.0


class Abandoned(Exception):
    """Ends a call in a thread between two steps, because nobody waits for it any more."""


class Caller:
    """The asyncio task that awaits a call in a thread. The thread asks it to run functions, and waits for them.

    They run in this task, so that an async generator keeps its context variables and timeouts from page to page.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], Future[Any]] | None] = asyncio.Queue()
        self._reply: Future[Any] | None = None
        self._left = Event()

    async def result_of(self, call: "asyncio.Future[T]") -> T:
        """Returns the result of the call in the thread. Until it has one, runs what the thread asks for.

        Raises:
            asyncio.CancelledError: The task was cancelled, or what it runs raised the error by itself.
        """
        call.add_done_callback(lambda _: self._asked.put_nowait(None))
        while (asked := await self._asked.get()) is not None:
            work, reply = asked
            try:
                reply.set_result(await work())
            except Exception as error:
                reply.set_exception(error)
        return await call

    def leave(self) -> None:
        """Ends the call in the thread at its next step."""
        self._left.set()
        if self._reply is not None:
            self._reply.cancel()

    def check(self) -> None:
        """Raises Abandoned if nobody waits for the call any more."""
        if self._left.is_set():
            raise Abandoned

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Calls a function in the task, and returns to the thread what it returns, awaited if that can be awaited.

        Raises:
            Abandoned: Nobody waits for the call any more. The function is not called then, or is cancelled; or it never
                ends, because the loop was closed.
        """

        async def call() -> Any:
            answer = work(*args)
            return await answer if isawaitable(answer) else answer

        reply = self._reply = Future()  # before the check: the task may leave after it, and cancels the reply then
        self.check()
        try:
            self._loop.call_soon_threadsafe(self._asked.put_nowait, (call, reply))
        except RuntimeError:  # the loop is closed
            raise Abandoned from None
        try:
            while not reply.done():
                with suppress(TimeoutError):
                    return reply.result(LOOK_S)
                if self._loop.is_closed() and not reply.done():
                    raise Abandoned
            return reply.result()
        except CancelledError:
            self.check()
            raise  # the function's own error


async def in_thread(app: "Celery[Any]", call: Callable[[], T], caller: Caller | None = None) -> T:
    """Runs a call in a thread of an app, with the context variables and the running Celery task of the caller.

    If the caller is cancelled, a call that has no thread yet is never made. One that has goes on to its end; if it
    fails then, that is logged.

    Args:
        app: The app.
        call: The call.
        caller: Whom the call asks to run functions. The call has a thread of its own then: those functions may need one
            that calls share.
    """
    future = _submit(app, partial(copy_context().run, _in_task(call)), alone=caller is not None)
    result = asyncio.wrap_future(future)
    try:
        return await (result if caller is None else caller.result_of(result))
    except asyncio.CancelledError:
        result.cancel()
        if not future.cancel():
            future.add_done_callback(_log_failure)
        raise


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
        TypeError: ``task`` is none of these.
        DelayTooLong: The transport option ``max_delay`` does not allow the delay.
        kombu.exceptions.OperationalError: The broker has not answered for as long as ``apply_async`` would try.
    """
    if not isinstance(task, str) and not hasattr(task, "apply_async"):
        raise TypeError(f"asend takes a task, a signature or the name of a task, not {type(task).__name__}")
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

    If the caller is cancelled, it sends the pages that it has read, at most two, and no further calls. It does not call
    ``on_sent`` or ``on_outcomes`` any more.

    With an async iterable, ``on_sent`` or ``on_outcomes`` it has a thread of its own, so that they may send, too.

    Args:
        app: Any app.
        task: A task of the app, or the name of any task.
        calls: The arguments, due time and task id of every call. An async iterable is read in the caller's asyncio
            task, up to 200 calls at a time; any other in a thread.
        on_sent: Called in the caller's asyncio task after each page with its task ids, and awaited if it returns an
            awaitable. The next page waits for that.
        on_outcomes: The same with what became of each call, as of ``send_many``.
        **options: Options of ``apply_async`` for all calls.
    """
    caller = Caller()
    told: dict[str, Any] = {
        name: partial(caller.run, listener)
        for name, listener in (("on_sent", on_sent), ("on_outcomes", on_outcomes))
        if listener is not None
    }
    read = _from_task(caller, aiter(calls)) if isinstance(calls, AsyncIterable) else calls
    send = partial(send_many, app, task, _checked(caller, read), **told, **options)
    try:
        return await in_thread(app, send, caller if told or read is not calls else None)
    finally:
        caller.leave()


def _checked(caller: Caller, calls: Iterable[Call]) -> Iterator[Call]:
    """Yields calls, in a thread, until nobody waits for them any more."""
    for call in calls:
        caller.check()
        yield call


def _from_task(caller: Caller, calls: AsyncIterator[T]) -> Iterator[T]:
    """Yields what an async iterator yields, in a thread; a page at a time, because each way to the loop takes long."""

    async def page() -> tuple[list[T], Exception | None]:
        found: list[T] = []
        try:
            while len(found) < MAX_OFFERS:
                found.append(await anext(calls))
        except Exception as error:
            return found, error
        return found, None

    end: Exception | None = None
    while end is None:
        found, end = caller.run(page)
        yield from found
    if not isinstance(end, StopAsyncIteration):
        raise end


async def aclose(app: "Celery[Any]") -> None:
    """Waits for the calls of an app that are still under way in threads, and ends its threads.

    It is for the end of a server, such as the lifespan of FastAPI. A later call makes new threads. The connections stay
    in the pools of the process.
    """
    with _lock:
        threads = _threads.pop(_actual(app), None)
    if threads is not None:
        await asyncio.to_thread(threads.close)


def _submit(app: "Celery[Any]", call: Callable[[], T], alone: bool) -> "Future[T]":
    key = _actual(app)
    with _lock:
        threads = _threads.get(key)
        if threads is None:
            threads = _threads[key] = _Threads(app)
        return threads.submit(call, alone)


def _in_task(call: Callable[[], T]) -> Callable[[], T]:
    """Returns a call that a thread makes as a part of the Celery task that runs here: Celery notes that by thread."""
    task = get_current_worker_task()
    if task is None:
        return call
    request = task.request

    def in_task() -> T:
        _task_stack.push(task)
        task.request_stack.push(request)
        try:
            return call()
        finally:
            task.request_stack.pop()
            _task_stack.pop()

    return in_task


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
    _threads.clear()


os.register_at_fork(after_in_child=_forget_threads)
