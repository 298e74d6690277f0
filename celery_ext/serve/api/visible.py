"""What a caller may see of waiting tasks: which tasks a query or a filter means, and what of a message is hidden."""

from collections.abc import Mapping
from math import inf
from typing import Any

from msgspec import field

from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.api.exchange import CursorText, Limit, Moment, QueueName, Sought, Strict
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.waiting import Selection
from kombu_delayq.message import LAST_ERROR, ms_of
from kombu_delayq.store import DelayStore

#: What has arguments of a task, or may name some: fields of an answer, and of the headers or properties of a message.
ARGUMENTS = ("args", "kwargs", "argsrepr", "kwargsrepr", LAST_ERROR)


class Filter(Strict):
    """Chooses waiting tasks. All that is given has to match.

    Attributes:
        queue: Name of the queue.
        from_: Due at this time or later.
        to: Due before this time.
        task: Name of the task; ``*`` stands for any text.
        q: Text in the arguments; ``path=value`` compares one argument.
        retried: Whether only tasks are meant that have run before, and wait for a retry.
    """

    queue: QueueName | None = None
    from_: Moment | None = field(default=None, name="from")
    to: Moment | None = None
    task: Sought | None = None
    q: Sought | None = None
    retried: bool = False


class TaskQuery(Filter):
    """Which waiting tasks to list.

    Attributes:
        queue: Only those of this queue.
        from_: Only those due at this time or later.
        to: Only those due before this time.
        task: Only tasks of this name; ``*`` stands for any text.
        q: Only tasks whose arguments contain this text; ``path=value`` compares one argument.
        retried: Only tasks that have run before, and wait for a retry.
        cursor: Goes on behind the answer before.
        limit: Most tasks to return.
    """

    cursor: CursorText | None = None
    limit: Limit = 100


def selection_of(
    store: DelayStore, caller: Caller, wanted: Filter, *, hidden: bool, action: Action = Action.READ
) -> Selection:
    """Returns what a query or a filter means for a caller.

    Args:
        store: The broker's store.
        caller: Its queues are the only ones.
        wanted: The query or filter.
        hidden: Whether arguments are hidden; then nobody may search them either.
        action: What the caller wants to do.

    Raises:
        Problem: 400 for a wrong filter, 403 for a queue that is not the caller's.
    """
    if wanted.q is not None and hidden:
        raise Problem(403, "this server hides arguments, so they cannot be searched", "arguments-hidden")
    if wanted.queue is not None:
        caller.check(action, queue=wanted.queue)
    try:
        return Selection(
            queues=caller.queues_in(store, wanted.queue),
            from_ms=-inf if wanted.from_ is None else ms_of(wanted.from_),
            to_ms=inf if wanted.to is None else ms_of(wanted.to),
            task=wanted.task,
            q=wanted.q,
            retried=wanted.retried,
        )
    except ValueError as error:
        raise bad_request(str(error), "bad-filter") from None


def shown_of(fields: Mapping[str, Any], *, hidden: bool) -> dict[str, Any]:
    """Returns the headers or properties of a message, without what shows arguments if these are hidden."""
    return {name: value for name, value in fields.items() if not (hidden and name in ARGUMENTS)}
