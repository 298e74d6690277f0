"""Waiting tasks of an app by queue, due time, task and arguments: counted, read and changed all at once."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any

from kombu.log import get_logger
from redis.exceptions import ResponseError

from celery_ext.waiting import revoke
from celery_ext.waiting.bulk import Bulk, BulkAction, BulkOutcome, audited_bulk, take_snapshot
from celery_ext.waiting.control import rescheduling, store_of_app
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.search import Skipped, search_page, search_tasks, sizes_of
from celery_ext.waiting.selection import Argument, Selection
from kombu_delayq.errors import quoted
from kombu_delayq.message import ms_of

if TYPE_CHECKING:
    from celery import Celery

    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: A page of an iteration has at most so many tasks, and takes about so many s, whichever comes first.
PAGE, PAGE_S = 500, 1.0


def select(
    app: "Celery[Any]",
    *,
    task: str | None = None,
    queues: str | Iterable[str] | None = None,
    due_from: datetime | None = None,
    due_to: datetime | None = None,
    args: Mapping[str, Any] | None = None,
    priority: int | None = None,
) -> "Selected":
    """Returns the waiting tasks that meet all conditions. Asks Redis nothing yet.

    ``args`` maps paths to values. A path begins with ``args`` or ``kwargs``, or with a position of ``args``; dots lead
    on into lists and dicts: ``"0"``, ``"args.0"``, ``"kwargs.user_id"``, ``"kwargs.user.id"``. Values have to be equal:
    ``7`` is ``7.0``, and not ``"7"``. Arguments are read from JSON, YAML and msgpack, also where they are compressed. A
    pickle is never loaded, so with ``args`` no task with a pickle is selected.

    Args:
        app: Any app on the broker.
        task: Name of a task, or a pattern with ``*``, ``?`` and ``[…]``, such as ``"shop.*"``.
        queues: A queue, or several; None for all.
        due_from: Only tasks due at this time or later; without a zone it is in UTC.
        due_to: Only tasks due earlier than this time; without a zone it is in UTC.
        args: Values that arguments have, by their paths.
        priority: 0 to 9.

    Raises:
        ValueError: A condition is of the wrong kind; the text says which.
    """
    for name, moment in (("due_from", due_from), ("due_to", due_to)):
        if not isinstance(moment, datetime | None):
            raise ValueError(f"{name}={moment!r} is no datetime")
    from_ms = -inf if due_from is None else ms_of(due_from)
    to_ms = inf if due_to is None else ms_of(due_to)
    if not isinstance(args, Mapping | None):
        raise ValueError(f"args={quoted(args)} is no dict of paths and values, such as {{'kwargs.user_id': 7}}")
    arguments = tuple(Argument.of_value(path, value) for path, value in (args or {}).items())
    selection = Selection(
        queues=_names(queues), from_ms=from_ms, to_ms=to_ms, task=task, priority=priority, arguments=arguments
    )
    return Selected(app, selection)


def _names(queues: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if queues is None:
        return None
    if not isinstance(queues, Iterable) or isinstance(queues, bytes):
        raise ValueError(f"queues={quoted(queues)} is neither the name of a queue nor several names")
    names = (queues,) if isinstance(queues, str) else tuple(queues)
    if "" in names:
        raise ValueError(f"queues={quoted(names)} are no names of queues")
    return names


def browse(
    app: "Celery[Any]",
    queue: str | None = None,
    *,
    due_after: datetime | None = None,
    due_before: datetime | None = None,
    limit: int | None = None,
) -> Iterator[DelayedTask]:
    """Yields waiting tasks in the order of their due times, as ``select`` does.

    Args:
        app: Any app on the broker.
        queue: Name of the queue; None for all queues.
        due_after: Only tasks due at this time or later; without a zone it is in UTC.
        due_before: Only tasks due earlier than this time; without a zone it is in UTC.
        limit: Most tasks to yield; None for all.

    Raises:
        ValueError: As of ``select``.
        kombu.exceptions.OperationalError: Redis does not answer.
        redis.exceptions.ResponseError: A queue cannot be read, such as for a key of another type.
    """
    if _is_empty(due_after, due_before):
        return iter(())
    selected = select(app, queues=queue, due_from=due_after, due_to=due_before)
    return islice(selected._tasks(_raise_skipped), limit)


def count(
    app: "Celery[Any]",
    queue: str | None = None,
    *,
    due_after: datetime | None = None,
    due_before: datetime | None = None,
) -> int:
    """Counts the waiting tasks that ``browse`` yields; the arguments are the same.

    Raises:
        ValueError: As of ``select``.
        kombu.exceptions.OperationalError: Redis does not answer.
        redis.exceptions.ResponseError: A queue cannot be read, such as for a key of another type.
    """
    if _is_empty(due_after, due_before):
        return 0
    return select(app, queues=queue, due_from=due_after, due_to=due_before).count()


def _is_empty(due_after: datetime | None, due_before: datetime | None) -> bool:
    """Whether a range has no due time, which ``select`` takes for a mistake."""
    if not (isinstance(due_after, datetime) and isinstance(due_before, datetime)):
        return False
    return ms_of(due_after) >= ms_of(due_before)


class Selected:
    """Waiting tasks of an app that meet some conditions, as in ``select``. Each use looks at what waits then.

    Iterating yields each as a ``DelayedTask``, the next due first, a page at a time: the tasks may be any number, and
    may be changed meanwhile. It is no snapshot: it may or may not yield a task that comes or goes meanwhile.

    ``cancel``, ``reschedule`` and ``run_now`` first note which tasks are selected, with 8 bytes of memory for each, and
    change only those that still meet the conditions when it is their turn. So tasks that come later stay as they are.
    What they do may be stopped at any time and done again. Each that changes something writes a line to the log
    ``kombu_delayq.audit``.

    Each use raises ``kombu.exceptions.OperationalError`` if Redis does not answer.
    """

    def __init__(self, app: "Celery[Any]", selection: Selection) -> None:
        self._app, self._selection = app, selection

    def __repr__(self) -> str:
        return f"<Selected: {self._selection.as_json()}>"

    def count(self) -> int:
        """Counts the tasks. With a task, arguments or a priority it reads all messages of the queues and the range."""
        with store_of_app(self._app) as store:
            if not self._selection.reads_bodies:
                sizes, skipped = sizes_of(store, self._selection)
                _raise_skipped(skipped)
                return sum(sizes.values())
            found = 0
            for event in search_tasks(store, self._selection):
                found += isinstance(event, DelayedTask)
                _log_skipped([event] if isinstance(event, Skipped) else ())
            return found

    def __iter__(self) -> Iterator[DelayedTask]:
        return self._tasks(_log_skipped)

    def _tasks(self, on_skipped: Callable[[Iterable[Skipped]], None]) -> Iterator[DelayedTask]:
        cursor: str | None = None
        while True:
            with store_of_app(self._app) as store:  # open for one page only: the caller may need the pool's connections
                page = search_page(store, self._selection, cursor, PAGE, PAGE_S)
            on_skipped(page.skipped if cursor is None else ())
            yield from page.tasks
            cursor = page.cursor
            if cursor is None:
                return

    def cancel(
        self,
        *,
        progress: Callable[[int, int], object] = lambda done, of: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Counter[BulkOutcome]:
        """Cancels the tasks. Their results become ``REVOKED``.

        Args:
            progress: Called now and then with the number of tasks that are done with, and that of all.
            stop: Whether to stop; it is asked before each call of Redis. What is done stays done.

        Returns:
            How many tasks each outcome had: ``cancelled``; ``gone`` for those that no longer waited or no longer met
            the conditions. If it was stopped, the others are in none.

        Raises:
            AnswerLost: The connection was lost before Redis answered. Some of the tasks may be cancelled.
        """
        return self._act(lambda store: BulkAction("cancel"), progress, stop)

    def reschedule(
        self,
        *,
        eta: datetime | None = None,
        countdown: float | None = None,
        by: timedelta | None = None,
        progress: Callable[[int, int], object] = lambda done, of: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Counter[BulkOutcome]:
        """Makes the tasks due at another time, all at the same, or moves each one.

        Args:
            eta: New due time; without a zone it is in UTC. A past time runs the tasks now.
            countdown: Instead of ``eta``: seconds from now, by Redis's clock.
            by: Instead of ``eta``: how much later each task is due, or earlier if it is negative. A second call moves
                all again, also those that the first had moved when it was stopped.
            progress: As of ``cancel``.
            stop: As of ``cancel``.

        Returns:
            As of ``cancel``: ``rescheduled``; ``transferred`` for those sent to their queues; ``gone``; ``unreadable``
            for those whose message cannot be rewritten, and which stay as they are.

        Raises:
            ValueError: Not exactly one of ``eta``, ``countdown`` and ``by`` is given, or it is no time.
            DelayTooLong: The time is farther away than the transport option ``max_delay`` allows.
            AnswerLost: The connection was lost before Redis answered.
        """
        return self._act(lambda store: rescheduling(store, eta, countdown, by), progress, stop)

    def run_now(
        self,
        *,
        progress: Callable[[int, int], object] = lambda done, of: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Counter[BulkOutcome]:
        """Sends the tasks to their queues before they are due.

        Args:
            progress: As of ``cancel``.
            stop: As of ``cancel``.

        Returns:
            As of ``cancel``: ``transferred``, ``gone`` and ``unreadable``; ``rescheduled`` for those that wait in a
            journal that nobody promotes, and run when the first worker does.

        Raises:
            AnswerLost: The connection was lost before Redis answered. Some of the tasks may have been sent.
        """
        return self._act(lambda store: BulkAction("run_now"), progress, stop)

    def _act(
        self,
        action_at: "Callable[[DelayStore], BulkAction]",
        progress: Callable[[int, int], object],
        stop: Callable[[], bool],
    ) -> Counter[BulkOutcome]:
        # The work may take long, and announcing needs the app's pool.
        with store_of_app(self._app, own=True) as store:
            action = action_at(store)
            matched = take_snapshot(store, self._selection, stop=stop)
            if matched is None:
                return Counter()
            _log_skipped(matched.skipped)
            bulk = Bulk(matched, action)
            with audited_bulk(bulk):
                bulk.run(store, progress=progress, stop=stop, announce=partial(revoke.announce_cancelled, self._app))
            return bulk.outcomes


def _log_skipped(skipped: Iterable[Skipped]) -> None:
    for one in skipped:
        logger.error("queue %r cannot be read: %s", one.queue, one.error)


def _raise_skipped(skipped: Iterable[Skipped]) -> None:
    for one in skipped:
        raise ResponseError(one.error)
