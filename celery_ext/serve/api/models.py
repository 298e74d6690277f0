"""The JSON of the API: what requests, and answers about tasks, consist of. The OpenAPI document is made from these."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

#: Longest time in s that a request may name; about 190 years. ``max_delay`` of the transport may allow less.
MAX_SECONDS = 6_000_000_000
#: Most tasks in a batch.
MAX_BATCH = 1_000
#: Longest names of tasks and queues, and longest task ids, in characters.
MAX_NAME, MAX_ID = 1_000, 500
#: Names of headers of a message: those of W3C's trace context, and names with a hyphen. Celery's own have none, so a
#: request cannot change what Celery or kombu-delayq read.
HEADER_NAME = r"^(traceparent|tracestate|baggage|[A-Za-z0-9_]+(-[A-Za-z0-9_]+)+)$"
#: Python takes U+001C to U+001F for white space, and JSON Schema U+FEFF: with all of them named, both agree.
_NOT_BLANK = r"[^\s\x1c-\x1f\x85\ufeff]"
#: What a text has to be that one of these patterns is for.
PATTERNS_IN_WORDS = {
    HEADER_NAME: "a header of a message is traceparent, tracestate or baggage, or has a hyphen in its name",
    _NOT_BLANK: "Expected a text that is not blank",
}
#: Delay chains as the document shows them; ``DelayChain.parse`` reads more.
_CHAIN = r"^[1-9][0-9]{0,2}(s|m|h)(\*[1-9])?(,[1-9][0-9]{0,2}(s|m|h)(\*[1-9])?){0,9}$"

TaskName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, examples=["shop.remind"])]
QueueName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, examples=["orders"])]
TaskId = Annotated[str, Meta(min_length=1, max_length=MAX_ID, examples=["5f0e5c7e-2f4b-4d8e-9d5c-0a1b2c3d4e5f"])]
#: A time in a request. It names its zone, so that nobody has to guess it.
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, with a zone", examples=["2030-01-01T09:00:00+01:00"])]
Countdown = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="s from now")]
Lifetime = Annotated[float, Meta(gt=0, le=MAX_SECONDS, description="s from now")]
Priority = Annotated[int, Meta(ge=0, le=9)]
Limit = Annotated[int, Meta(ge=1, le=1_000, description="Most rows of an answer")]
CursorText = Annotated[str, Meta(max_length=6_000, description="The `cursor` of the answer before")]
Headers = dict[Annotated[str, Meta(pattern=HEADER_NAME, max_length=100)], Annotated[str, Meta(max_length=8_192)]]
ChainText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=10_000,
        description="How long each retry waits",
        examples=["4m,10m*2,1h"],
        extra_json_schema={"pattern": _CHAIN},
    ),
]

#: A text to search for.
Sought = Annotated[str, Meta(min_length=1, max_length=500, pattern=_NOT_BLANK)]

#: A time in an answer.
Iso = Annotated[
    str,
    Meta(description="UTC, with ms", extra_json_schema={"format": "date-time"}, examples=["2030-01-01T08:00:00.000Z"]),
]
Count = Annotated[int, Meta(ge=0)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request. A field that nobody knows is an error: a slip must not pass in silence."""


def either(*fields: str) -> dict[str, Any]:
    """Returns the part of a schema that says: exactly one of these fields is given."""
    choices = []
    for name in fields:
        others = {other: {"type": "null"} for other in fields if other != name}
        choices.append({"required": [name], "properties": {name: {"not": {"type": "null"}}, **others}})
    return {"oneOf": choices}


class Answer(msgspec.Struct, kw_only=True):
    """An answer."""


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


class ProblemDetails(Answer):
    """Why a request failed, RFC 9457. Some kinds have further members.

    Attributes:
        type: Kind of the problem, stable.
        title: The kind in words.
        status: HTTP status.
        detail: What is wrong with this request.
        errors: With an invalid request: what is wrong, and where.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: "list[FieldError] | UnsetType" = UNSET


class FieldError(Answer):
    """What is wrong with a part of a request.

    Attributes:
        path: Where, such as ``$.tasks[3].eta``.
        message: What.
    """

    path: str
    message: str


class Enqueued(Answer):
    """A task that Redis has.

    Attributes:
        id: Task id.
        task: Its name.
        outcome: ``delayed`` (it waits until it is due) or ``queued`` (it is in its queue).
        queue: Its queue; null if it went to an exchange that may have several.
        due: When it is due; null at once.
    """

    id: str
    task: str
    outcome: Literal["delayed", "queued"]
    queue: str | None
    due: Iso | None


class BatchItem(Answer):
    """What became of an item of a batch.

    Attributes:
        status: HTTP status that the item alone would have had.
        outcome: ``delayed``, ``queued``; ``refused`` (nothing was enqueued) or ``unknown`` (Redis may have it).
        id: Task id; absent if the item was refused before it had one.
        task: Name of the task.
        queue: Its queue.
        due: When it is due.
        problem: Why it was refused, or is unknown.
    """

    status: int
    outcome: Literal["delayed", "queued", "refused", "unknown"]
    id: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    queue: str | UnsetType | None = UNSET
    due: Iso | UnsetType | None = UNSET
    problem: ProblemDetails | UnsetType = UNSET


class BatchAnswer(Answer):
    """What became of a batch.

    Attributes:
        enqueued: Number of tasks that Redis has.
        results: An outcome for each item, in order.
    """

    enqueued: Count
    results: list[BatchItem]


class Outcome(Answer):
    """What became of a task.

    Attributes:
        id: Task id.
        outcome: ``cancelled`` (it will never run), ``chain_ended`` (a step that runs now is the last),
            ``rescheduled``, ``transferred`` (it is in its queue now).
        due: With ``rescheduled``: when it is due.
    """

    id: str
    outcome: Literal["cancelled", "chain_ended", "rescheduled", "transferred"]
    due: Iso | UnsetType = UNSET


class Step(Answer):
    """A step of a delay chain that is still ahead.

    Attributes:
        delay_s: How long it waits, in s, without jitter.
        at: When it is due if the steps before fail at once.
    """

    delay_s: float
    at: Iso | None


class Steps(Answer):
    """Where a task stands in its delay chain.

    Attributes:
        behind: Delays of the steps that it has waited for, the present one last, in s.
        ahead: The steps to come.
    """

    behind: list[float]
    ahead: list[Step]


class Task(Answer):
    """A waiting task.

    Attributes:
        id: Task id.
        task: Its name; null for a message that is no task.
        queue: Its queue.
        due: When it is due.
        due_in_s: In how many s; negative if it is overdue.
        priority: 0 to 9.
        retries: How often it was retried.
        args: Positional arguments; null where they cannot be read, absent where the server hides them. So are all
            fields below.
        kwargs: Keyword arguments.
        argsrepr: Positional arguments as text.
        kwargsrepr: Keyword arguments as text.
        headers: Headers of the message.
        properties: Properties of the message.
        delay_chain: Its retry schedule.
        steps: Where it stands in that.
        state: Always ``delayed``.
        tier: Who has it: ``redis``, or ``journal`` while only the journal's database has it.
    """

    id: str
    task: str | None
    queue: str
    due: Iso
    due_in_s: float
    priority: int
    retries: int
    args: Any = UNSET
    kwargs: Any = UNSET
    argsrepr: str | UnsetType = UNSET
    kwargsrepr: str | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET
    delay_chain: str | None = None
    steps: Steps | None = None
    state: Literal["delayed"] = "delayed"
    tier: Literal["redis", "journal"] = "redis"


class TaskList(Answer):
    """A page of waiting tasks.

    Attributes:
        tasks: The tasks, the next due first.
        cursor: Where the next page begins; null on the last.
    """

    tasks: list[Task]
    cursor: str | None
