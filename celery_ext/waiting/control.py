"""Reads and changes the waiting tasks of an app."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from celery import Celery
from celery.result import AsyncResult

from celery_ext.connection import as_operational_errors, open_store
from celery_ext.waiting import by_id, revoke
from celery_ext.waiting.bulk import BulkAction
from celery_ext.waiting.by_id import Outcome
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.elsewhere import places
from kombu_delayq.audit import audited, ids_named
from kombu_delayq.message import ms_of

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

T = TypeVar("T")

#: Names a task: its id, or the AsyncResult that ``apply_async`` returned.
TaskId: TypeAlias = str | AsyncResult


@overload
def cancel(app: "Celery[Any]", task_id: TaskId) -> Outcome: ...
@overload
def cancel(app: "Celery[Any]", task_id: Iterable[TaskId]) -> dict[str, Outcome]: ...
def cancel(app: "Celery[Any]", task_id: TaskId | Iterable[TaskId]) -> Outcome | dict[str, Outcome]:
    """Cancels waiting tasks. If a step of a task's delay chain runs just now, the chain ends with this step.

    The result of a cancelled task becomes ``REVOKED``.

    Args:
        app: Any app on the broker.
        task_id: A task id or an AsyncResult, or any number of them, such as a GroupResult.

    Returns:
        One of these words; for several ids, a dict with the word of each id.

        - ``cancelled``: the task will never run.
        - ``chain_ended``: the task did not wait, but Redis knows its delay chain. If a step runs now, it is the last.
        - ``dead_letter``: the task did not wait, but is among the latest 2,000 dead letters of a queue, where it stays.
          ``DeadLetters.drop`` removes it; a replay begins its chain anew.
        - ``asked_to_stop``: the task runs, and was told that it is to stop: it asks ``celery_ext.cancelled``.
        - ``not_delayed``: the task did not wait. It runs without asking, has run, or was never sent. Redis may also be
          unable to search its queue; that is logged.

    Raises:
        AnswerLost: The connection was lost before Redis answered. Some of the tasks may be cancelled.
        kombu.exceptions.OperationalError: Redis does not answer. If only some nodes of a cluster do not, tasks that are
            found elsewhere are cancelled, and this says that others may wait there.
    """
    ids, found = _ids_of(app, task_id), dict[str, Outcome]()
    with _noted("cancel", ids, found):
        for cancelled in revoke.cancel(partial(store_of_app, app), ids, app, places=places()):
            found[cancelled.id] = cancelled.outcome
    return _in_shape_of(task_id, found)


@overload
def reschedule(
    app: "Celery[Any]",
    task_id: TaskId,
    *,
    eta: datetime | None = None,
    countdown: float | None = None,
    by: timedelta | None = None,
) -> Outcome: ...
@overload
def reschedule(
    app: "Celery[Any]",
    task_id: Iterable[TaskId],
    *,
    eta: datetime | None = None,
    countdown: float | None = None,
    by: timedelta | None = None,
) -> dict[str, Outcome]: ...
def reschedule(
    app: "Celery[Any]",
    task_id: TaskId | Iterable[TaskId],
    *,
    eta: datetime | None = None,
    countdown: float | None = None,
    by: timedelta | None = None,
) -> Outcome | dict[str, Outcome]:
    """Changes when waiting tasks are due.

    Args:
        app: Any app on the broker.
        task_id: A task id or an AsyncResult, or any number of them, such as a GroupResult.
        eta: New due time; without a zone it is in UTC. A past time runs the task now.
        countdown: Instead of ``eta``: seconds from now, by Redis's clock.
        by: Instead of ``eta``: how much later each task is due, or earlier if it is negative.

    Returns:
        One of these words; for several ids, a dict with the word of each id.

        - ``rescheduled``: the task waits until the new time.
        - ``transferred``: the new time is past, so the task was sent to its queue.
        - ``not_delayed``: the task did not wait. Nothing changed.
        - ``unreadable``: its message cannot be rewritten. Nothing changed.

    Raises:
        ValueError: Not exactly one of ``eta``, ``countdown`` and ``by`` is given; or ``eta`` is no datetime, ``by`` is
            no timedelta, or ``countdown`` is no number of seconds up to the year 9999.
        DelayTooLong: The time is farther away than the transport option ``max_delay`` allows. It is a ValueError, too.
        AnswerLost: The connection was lost before Redis answered. Some of the tasks whose new time is past may have
            been sent.
        kombu.exceptions.OperationalError: Redis does not answer. If only some nodes of a cluster do not, tasks that are
            found elsewhere are rescheduled, and this says that others may wait there.
    """
    ids, found = _ids_of(app, task_id), dict[str, Outcome]()
    with store_of_app(app) as store:
        action = rescheduling(store, eta, countdown, by)
        with _noted("reschedule", ids, found, **action.times()):
            found.update(by_id.reschedule(store, ids, action.due_ms, shift_s=action.shift_s))
    return _in_shape_of(task_id, found)


@overload
def run_now(app: "Celery[Any]", task_id: TaskId) -> Outcome: ...
@overload
def run_now(app: "Celery[Any]", task_id: Iterable[TaskId]) -> dict[str, Outcome]: ...
def run_now(app: "Celery[Any]", task_id: TaskId | Iterable[TaskId]) -> Outcome | dict[str, Outcome]:
    """Sends waiting tasks to their queues before they are due.

    Returns:
        ``transferred``, ``not_delayed`` or ``unreadable``, as in ``reschedule``; for several ids, a dict.

    Raises:
        AnswerLost: The connection was lost before Redis answered. Some of the tasks may have been sent.
        kombu.exceptions.OperationalError: Redis does not answer. If only some nodes of a cluster do not, tasks that are
            found elsewhere are sent, and this says that others may wait there.
    """
    ids, found = _ids_of(app, task_id), dict[str, Outcome]()
    with store_of_app(app) as store, _noted("run", ids, found):
        found.update(by_id.run_now(store, ids))
    return _in_shape_of(task_id, found)


@overload
def get(app: "Celery[Any]", task_id: TaskId) -> DelayedTask | None: ...
@overload
def get(app: "Celery[Any]", task_id: Iterable[TaskId]) -> dict[str, DelayedTask | None]: ...
def get(app: "Celery[Any]", task_id: TaskId | Iterable[TaskId]) -> DelayedTask | dict[str, DelayedTask | None] | None:
    """Returns a waiting task, or None. For several ids, returns a dict.

    If several waiting tasks share the id, returns the one that is due first.

    Raises:
        kombu.exceptions.OperationalError: Redis does not answer, or a node of a cluster does not, and may have a task
            that is not found elsewhere.
    """
    ids = _ids_of(app, task_id)
    with store_of_app(app) as store:
        found = by_id.get(store, ids)
        tasks = {found_id: DelayedTask(messages[0]) if messages else None for found_id, messages in found}
        return _in_shape_of(task_id, tasks)


@contextmanager
def _noted(action: str, ids: Iterable[str], found: Mapping[str, Outcome], **more: Any) -> Iterator[None]:
    """Logs in the audit what became of the tasks of an app, by their ids."""
    with audited(action, {**ids_named(ids), **more}) as counts:
        try:
            yield
        finally:
            counts.update(found.values())


@contextmanager
def store_of_app(app: "Celery[Any]", *, own: bool = False) -> Iterator["DelayStore"]:
    """Opens the store of an app's broker, over a connection of the app's pool; with ``own``, over one of its own.

    Raises:
        TypeError: It is no app.
        OtherTransport: The broker uses another transport.
        kombu.exceptions.OperationalError: The broker did not answer for as long as ``apply_async`` would try, or the
            connection was lost in the block.
    """
    _check_app(app)
    with as_operational_errors(), app.connection_for_write() if own else app.pool.acquire(block=True) as connection:
        # To read a setting takes longer than the rest, and there is nothing to try where there is a connection.
        policy = None if connection.connected else app.conf.task_publish_retry_policy or {}
        yield open_store(connection, retry_policy=policy)


def _ids_of(app: "Celery[Any]", task_id: TaskId | Iterable[TaskId]) -> Iterable[str]:
    """Returns the ids of the tasks that were given, each once.

    Raises:
        TypeError: They are no task ids, or the app is none.
    """
    if isinstance(task_id, Celery):
        raise TypeError("the app comes first, then the task id")
    _check_app(app)
    if isinstance(task_id, (str, bytes, AsyncResult)) or not isinstance(task_id, Iterable):
        task_id = (task_id,)
    return dict.fromkeys(map(_id_of, task_id))


def _check_app(app: object) -> None:
    if not isinstance(app, Celery):
        raise TypeError(f"the first argument is the Celery app, not {app!r}")


def _id_of(task_id: TaskId) -> str:
    identity = str(task_id.id) if isinstance(task_id, AsyncResult) else task_id  # which may be a ``UUID``
    if not isinstance(identity, str):
        raise TypeError(f"a task id is a text or an AsyncResult, not {task_id!r}")
    return identity


def _in_shape_of(task_id: TaskId | Iterable[TaskId], found: dict[str, T]) -> T | dict[str, T]:
    return found[_id_of(task_id)] if isinstance(task_id, (str, AsyncResult)) else found


def rescheduling(
    store: "DelayStore", eta: datetime | None, countdown: float | None, by: timedelta | None
) -> BulkAction:
    """Returns the action that gives tasks a new time, or moves each one.

    Raises:
        ValueError: Not exactly one is given, or it is no such value.
    """
    if sum(value is not None for value in (eta, countdown, by)) != 1:
        raise ValueError("give one of eta, countdown and by")
    if by is not None:
        if not isinstance(by, timedelta):
            raise ValueError(f"by={by!r} is not a timedelta")
        return BulkAction("reschedule", shift_s=by.total_seconds())
    if eta is not None:
        if not isinstance(eta, datetime):
            raise ValueError(f"eta={eta!r} is not a datetime")
        return BulkAction("reschedule", ms_of(eta))
    try:
        due_ms = store.now_ms() + timedelta(seconds=countdown or 0) / timedelta(milliseconds=1)
        datetime.fromtimestamp(due_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        raise ValueError(f"countdown={countdown!r} is not a number of seconds up to the year 9999") from None
    return BulkAction("reschedule", due_ms)
