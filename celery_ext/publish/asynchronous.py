"""Sends tasks from asyncio: one, or many calls of one task. Each call runs in a thread of its app."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakKeyDictionary

from celery._state import _task_stack, get_current_worker_task
from kombu.log import get_logger

from celery_ext.publish.many import send_many
from celery_ext.publish.recipe import Call
from celery_ext.typing import CallOptions, SharedOptions

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult

logger = get_logger(__name__)

T = TypeVar("T")

#: Threads of an app whose setting ``broker_pool_limit`` is 0 or None, which both mean any number of connections.
THREADS = 10


#: The threads of each app, as many as its pool has connections, so that none of them only waits for a connection. They
#: are not those of ``asyncio.to_thread``: a broker that is away holds up nothing else.
_threads: WeakKeyDictionary[Any, ThreadPoolExecutor] = WeakKeyDictionary()
_lock = Lock()


class Abandoned(Exception):
    """Ends a call in a thread between two steps, because nobody waits for it any more."""


async def in_thread(app: "Celery[Any]", call: Callable[[], T]) -> T:
    """Runs a call in a thread of an app, with the context variables and the running Celery task of the caller.

    If the caller is cancelled, a call that has no thread yet is never made. One that has goes on to its end; if it
    fails then, that is logged.
    """
    future = _submit(app, partial(copy_context().run, _in_task(call)))
    result = asyncio.wrap_future(future)
    try:
        return await result
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


async def asend_many(app: "Celery[Any]", task: Any, calls: Iterable[Call], **options: Unpack[SharedOptions]) -> int:
    """Sends many calls of a task; arguments, result and errors are those of ``send_many``.

    If the caller is cancelled, it sends the pages that it has read, at most two, and no further calls.

    Args:
        app: Any app.
        task: A task of the app, or the name of any task.
        calls: The arguments, due time and task id of every call, which a thread reads.
        **options: Options of ``apply_async`` for all calls.
    """
    left = Event()
    try:
        return await in_thread(app, partial(send_many, app, task, _until(left, calls), **options))
    finally:
        left.set()


def _until(left: Event, calls: Iterable[Call]) -> Iterator[Call]:
    """Yields calls until nobody waits for them any more."""
    for call in calls:
        if left.is_set():
            raise Abandoned
        yield call


async def aclose(app: "Celery[Any]") -> None:
    """Waits for the calls of an app that are still under way in threads, and ends its threads.

    It is for the end of a server, such as the lifespan of FastAPI. A later call makes new threads. The connections stay
    in the pools of the process.
    """
    with _lock:
        threads = _threads.pop(_actual(app), None)
    if threads is not None:
        await asyncio.to_thread(threads.shutdown)


def _submit(app: "Celery[Any]", call: Callable[[], T]) -> "Future[T]":
    key = _actual(app)
    with _lock:
        threads = _threads.get(key)
        if threads is None:
            _ = app.amqp.producer_pool  # Celery makes it at its first use, which two threads at once would not survive
            most = app.conf.broker_pool_limit or THREADS
            threads = _threads[key] = ThreadPoolExecutor(most, thread_name_prefix="delayq-async")
        return threads.submit(call)


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
