"""The request ``POST /v1/tasks``: its fields, what they have to be, and where they go.

A field that is an option of ``apply_async`` is marked as ``OPTION``, and has no other place.
"""

from collections.abc import Hashable
from functools import cache
from typing import Annotated, Any, ClassVar, get_type_hints

from msgspec import Meta, field

from celery_ext.delays import DelayChain
from celery_ext.limits import read_key
from celery_ext.serve.api.exchange import (
    ChainText,
    Countdown,
    Headers,
    Lifetime,
    LimitKey,
    Moment,
    Priority,
    QueueName,
    Strict,
    TaskId,
    TaskName,
    invalid_field,
)
from kombu_delayq.errors import InvalidDelayChain, InvalidLimit
from kombu_delayq.message import ADD, IF_WAITING, WITH_KEY, IfWaiting, modes_in_words

#: Marks a field that goes to Celery as an option of ``apply_async`` with its name.
OPTION = Meta(extra={"option": True})
_Mode = Annotated[IfWaiting, Meta(description=modes_in_words())]
#: Of each of these a request gives one at most.
_EITHER = (("countdown", "eta"), ("id", "waiting_key"))


class TaskRequest(Strict):
    """A task to enqueue.

    Attributes:
        task: Name of the task.
        args: Positional arguments.
        kwargs: Keyword arguments.
        queue: Its queue; by default the queue to which the app routes the task.
        countdown: Delay in s. Neither ``countdown`` nor ``eta``: the task is due at once.
        eta: When it is due, instead of ``countdown``.
        expires: After this time, or after so many s from now, a worker does not run it any more.
        priority: As in Celery; by default that of the task.
        delay_chain: How long each retry waits; by default that of the task.
        id: Task id; by default a random one.
        waiting_key: What ``if_waiting`` looks for, instead of an ``id``. The task has an id of its own, and is found
            by the key, too, while it waits.
        if_waiting: What happens where a task of this ``waiting_key`` or ``id`` waits in the queue. But for ``add``,
            it needs one of both, and a token for all tasks.
        limit: The key of its limit, such as ``account:7``; by default that of the task. Empty for none.
        headers: Further headers of the message, such as ``traceparent``.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "allOf": [{"anyOf": [{"properties": {one: {"type": "null"}}} for one in either]} for either in _EITHER]
    }

    task: TaskName
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    queue: QueueName | None = None
    countdown: Countdown | None = None
    eta: Moment | None = None
    expires: Lifetime | Moment | None = None
    priority: Annotated[Priority | None, OPTION] = None
    delay_chain: Annotated[ChainText | None, OPTION] = None
    id: TaskId | None = None
    waiting_key: TaskId | None = None
    if_waiting: Annotated[_Mode | None, OPTION] = None
    limit: LimitKey | None = None
    headers: Headers = field(default_factory=dict)

    def check(self) -> None:
        """Raises a Problem, 422, where the fields do not go together, or one is none that it can be."""
        for one, other in _EITHER:
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise invalid_field("$", f"give either {one} or {other}, not both")
        if self.if_waiting not in (None, ADD) and not (self.id or self.waiting_key):
            raise invalid_field("$.waiting_key", f"if_waiting={self.if_waiting!r} needs a waiting_key or an id")
        if self.delay_chain is not None:
            try:
                DelayChain.parse(self.delay_chain)
            except InvalidDelayChain as error:
                raise invalid_field("$.delay_chain", str(error)) from None
        if self.limit is not None:
            try:
                read_key(self.limit)
            except InvalidLimit as error:
                raise invalid_field("$.limit", str(error)) from None

    def options(self, task: Any) -> dict[str, Any]:
        """Returns the options of ``apply_async`` that the request gives.

        Args:
            task: The task; None if the app does not know it.
        """
        found = {name: value for name in option_fields(type(self)) if (value := getattr(self, name)) is not None}
        if self.waiting_key is not None:
            found.setdefault(IF_WAITING, getattr(task, IF_WAITING, None) or WITH_KEY)
        return found

    @property
    def kind(self) -> Hashable:
        """What requests have in common whose messages are made in one way."""
        has = self.expires is not None, self.waiting_key is not None
        return self.task, self.queue, *(getattr(self, name) for name in option_fields(type(self))), *has


@cache
def option_fields(kind: type[TaskRequest]) -> tuple[str, ...]:
    """Returns the names of the fields that are marked as ``OPTION``."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(name for name, hint in hints.items() if OPTION in getattr(hint, "__metadata__", ()))
