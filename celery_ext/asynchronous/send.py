"""Sends tasks from asyncio: one, or many calls of one task."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from celery_ext.asynchronous.threads import Loop, in_thread
from celery_ext.bulk.send_many import send_many
from celery_ext.bulk.target import Call
from celery_ext.typing import CallOptions, SharedOptions
from kombu_delayq.publish_batch import MAX_OFFERS

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult

T = TypeVar("T")


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
    **options: Unpack[SharedOptions],
) -> int:
    """Sends many calls of a task; arguments, result and errors are those of ``send_many``.

    If the caller is cancelled, it sends the calls that it has read, at most two pages, and no further ones. It does not
    call ``on_sent`` any more.

    Args:
        app: Any app.
        task: A task of the app, or the name of any task.
        calls: The arguments, due time and task id of every call. An async iterable is read in the event loop, up to 200
            calls at a time; any other in a thread.
        on_sent: Called in the event loop after each page with its task ids, and awaited if it returns an awaitable. The
            next page waits for that.
        **options: Options of ``apply_async`` for all calls.
    """
    loop = Loop()
    from_loop = _from_loop(loop, aiter(calls)) if isinstance(calls, AsyncIterable) else calls
    told = None if on_sent is None else partial(loop.tell, on_sent)
    try:
        return await in_thread(app, partial(send_many, app, task, _checked(loop, from_loop), on_sent=told, **options))
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
