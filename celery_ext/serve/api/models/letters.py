"""What answers about dead letters, and about bulk actions, consist of."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from celery_ext.serve.api.models.fields import Answer, Count, Iso


class LetterQueue(Answer):
    """A queue of dead letters.

    Attributes:
        queue: Its name.
        dead_letters: How many it holds.
    """

    queue: str
    dead_letters: Count


class LetterQueues(Answer):
    """The queues of dead letters.

    Attributes:
        queues: The queues that Redis and the server know.
    """

    queues: list[LetterQueue]


class DeadLetter(Answer):
    """A task that failed for good.

    Attributes:
        id: Task id; of a message that is no task, its delivery tag.
        task: Name of the task.
        reason: Why it was buried; null if kombu-delayq did not bury it.
        error: Its last error; absent where the server hides arguments, which it may name. So are the arguments.
        at: When it was buried.
        worker: Who buried it.
        retries: How often it was retried.
        priority: 0 to 9.
        exchange: Exchange through which it came; empty for the default one.
        routing_key: Its routing key; with the default exchange, its queue.
        args: Positional arguments.
        kwargs: Keyword arguments.
        headers: Headers of the message.
    """

    id: str
    task: str | None
    reason: str | None
    at: Iso | None
    worker: str | None
    retries: int
    priority: int
    exchange: str | None
    routing_key: str | None
    error: str | UnsetType | None = UNSET
    args: Any = UNSET
    kwargs: Any = UNSET
    headers: dict[str, Any] | UnsetType = UNSET


class LetterList(Answer):
    """A page of dead letters, priority by priority, the oldest first.

    Attributes:
        dead_letters: The letters.
        cursor: Where the next page begins; null on the last.
    """

    dead_letters: list[DeadLetter]
    cursor: str | None


class LettersDone(Answer):
    """What became of dead letters.

    Attributes:
        replayed: How many went back to the queues from which they came.
        dropped: How many were removed.
        unroutable: How many stay because nobody knows from which queue they came.
        missing: Ids that are not among the dead letters that the caller may change.
    """

    replayed: Count = 0
    dropped: Count = 0
    unroutable: Count = 0
    missing: list[str] = field(default_factory=list)


class BulkAnswer(Answer):
    """An action on all tasks that a filter chose at a moment.

    Attributes:
        id: Its name.
        action: What is done to each task.
        state: ``counting``, ``counted`` (it can be started), ``running``, ``stopped``, ``done`` or ``failed``.
        matched: How many tasks the filter chose; null until they are counted.
        as_of: When they had been counted. Tasks that came later are left alone.
        looked: While it counts: how many tasks it has looked at.
        done: How many tasks have an outcome.
        of: How many are to be looked at, or to be done.
        outcomes: How many tasks had each outcome.
        error: Why it failed.
    """

    id: str
    action: Literal["cancel", "reschedule", "run"]
    state: Literal["counting", "counted", "running", "stopped", "done", "failed"]
    matched: Count | None
    as_of: Iso | None
    looked: Count
    done: Count
    of: Count
    outcomes: dict[str, Count]
    error: str | UnsetType = UNSET
