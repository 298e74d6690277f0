"""What answers consist of."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from celery_ext.serve.api.models.fields import Answer, Count, Iso


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
