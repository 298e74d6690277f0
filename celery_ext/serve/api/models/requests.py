"""What requests consist of: JSON bodies, and the parameters of queries."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from celery_ext.serve.api.models.fields import (
    MAX_BATCH,
    ChainText,
    Countdown,
    CursorText,
    Headers,
    Lifetime,
    Limit,
    Moment,
    Priority,
    QueueName,
    Sought,
    Strict,
    TaskId,
    TaskName,
    either,
)


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
        headers: Further headers of the message, such as ``traceparent``.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "anyOf": [{"properties": {"countdown": {"type": "null"}}}, {"properties": {"eta": {"type": "null"}}}]
    }

    task: TaskName
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    queue: QueueName | None = None
    countdown: Countdown | None = None
    eta: Moment | None = None
    expires: Lifetime | Moment | None = None
    priority: Priority | None = None
    delay_chain: ChainText | None = None
    id: TaskId | None = None
    headers: Headers = field(default_factory=dict)


#: An item of a batch should be a task, and may be anything: each has an outcome of its own.
_ITEM = {"anyOf": [{"$ref": "#/components/schemas/TaskRequest"}, {}]}


class BatchRequest(Strict):
    """Tasks to enqueue at once.

    Attributes:
        tasks: The tasks. Each has an outcome of its own: an item may also be wrong.
    """

    tasks: Annotated[list[Any], Meta(min_length=1, max_length=MAX_BATCH, extra_json_schema={"items": _ITEM})]


class DueRequest(Strict):
    """When a task is to be due: either of the two.

    Attributes:
        eta: When.
        countdown: In s from now, by Redis's clock.
    """

    schema_extra: ClassVar[dict[str, Any]] = either("eta", "countdown")

    eta: Moment | None = None
    countdown: Countdown | None = None


class TaskQuery(Strict):
    """Which waiting tasks to list.

    Attributes:
        queue: Only those of this queue.
        from_: Only those due at this time or later.
        to: Only those due before this time.
        task: Only tasks of this name; ``*`` stands for any text.
        q: Only tasks whose arguments contain this text; ``path=value`` compares one argument.
        cursor: Goes on behind the answer before.
        limit: Most tasks to return.
    """

    queue: QueueName | None = None
    from_: Moment | None = field(default=None, name="from")
    to: Moment | None = None
    task: Sought | None = None
    q: Sought | None = None
    cursor: CursorText | None = None
    limit: Limit = 100


class HistogramQuery(Strict):
    """The span of a histogram.

    Attributes:
        from_: Its beginning; by default now.
        to: Its end; by default an hour later.
        buckets: Number of buckets.
    """

    from_: Moment | None = field(default=None, name="from")
    to: Moment | None = None
    buckets: Annotated[int, Meta(ge=1, le=240)] = 120


class PageQuery(Strict):
    """A page of a list.

    Attributes:
        cursor: Goes on behind the answer before.
        limit: Most rows to return.
    """

    cursor: CursorText | None = None
    limit: Limit = 100


class LettersRequest(Strict):
    """Which dead letters: either of the two.

    Attributes:
        ids: Task ids.
        all: Whether all of the queue.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["ids"], "properties": {"ids": {"type": "array"}, "all": {"const": False}}},
            {"required": ["all"], "properties": {"ids": {"type": "null"}, "all": {"const": True}}},
        ]
    }

    ids: Annotated[list[TaskId], Meta(min_length=1, max_length=MAX_BATCH)] | None = None
    all: bool = False


class Filter(Strict):
    """Chooses waiting tasks. All that is given has to match.

    Attributes:
        queue: Name of the queue.
        from_: Due at this time or later.
        to: Due before this time.
        task: Name of the task; ``*`` stands for any text.
        q: Text in the arguments; ``path=value`` compares one argument.
    """

    queue: QueueName | None = None
    from_: Moment | None = field(default=None, name="from")
    to: Moment | None = None
    task: Sought | None = None
    q: Sought | None = None


class BulkRequest(Strict):
    """An action on all tasks that a filter chooses now.

    Attributes:
        action: What is done to them.
        filter: Chooses the tasks.
        eta: For ``reschedule``: when they are due.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["eta"], "properties": {"action": {"const": "reschedule"}, "eta": {"type": "string"}}},
            {"properties": {"action": {"enum": ["cancel", "run"]}, "eta": {"type": "null"}}},
        ]
    }

    action: Literal["cancel", "reschedule", "run"]
    filter: Filter
    eta: Moment | None = None


class BulkStart(Strict):
    """Starts a bulk action.

    Attributes:
        confirm: Number of tasks that the answer to its creation named.
    """

    confirm: Annotated[int, Meta(ge=0)]
