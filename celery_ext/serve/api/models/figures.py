"""What answers about queues consist of."""

from msgspec import UNSET, UnsetType, field

from celery_ext.serve.api.models.fields import Answer, Count, Iso


class HeldBackFigures(Answer):
    """The rate that holds back a queue's overdue messages.

    Attributes:
        per_s: Most messages a second.
        burst: How many may go at once after a pause.
        until: About when as many have left as are overdue now.
    """

    per_s: float
    burst: float
    until: Iso


class QueueFigures(Answer):
    """What a queue holds.

    Attributes:
        queue: Its name.
        delayed: Number of messages that wait for their due time.
        in_journal: How many of them only the journal has; 0 without a journal.
        ready: Number of messages that wait for a consumer.
        overdue: Number of delayed messages whose due time is past.
        overdue_by_s: For how long the oldest of them has been due, in s.
        held_back: The rate that holds them back; null if none does.
        too_late: How many messages that were too late were dropped, and how many became dead letters.
        unacked: Number of messages in the hands of consumers; null if the server's Redis user may not know it.
        dead_letters: Number of its messages if it is a queue of dead letters; else null.
        next_due: When the next message is due.
        lateness_p50_s: Median of how late messages were transferred, in s, an estimate; null without any. A lateness
            beyond an hour counts as an hour.
        lateness_p99_s: The same for 99 % of the messages.
        transferred: Number of messages that were transferred because they were due.
        consumers: Number of consumers that live; null if the server's Redis user may not know it.
        error: Why Redis refuses to count the queue; the numbers are 0 then.
    """

    queue: str
    delayed: Count
    in_journal: Count
    ready: Count
    overdue: Count
    overdue_by_s: float
    held_back: HeldBackFigures | None
    too_late: dict[str, Count]
    unacked: Count | None
    dead_letters: Count | None
    next_due: Iso | None
    lateness_p50_s: float | None
    lateness_p99_s: float | None
    transferred: Count
    consumers: Count | None
    error: str | UnsetType = UNSET


class RedisFigures(Answer):
    """The server behind the queues.

    Attributes:
        used_memory: Bytes in use; 0 if the server hides it.
        maxmemory: Its limit in bytes; 0 without a limit.
        version: Its version; empty if it hides it.
    """

    used_memory: Count
    maxmemory: Count
    version: str


class QueueList(Answer):
    """All queues.

    Attributes:
        now: Redis's clock.
        queues: The queues.
        leader: Name of the leading transfer worker; null if nobody leads.
        standby: Names of those that lead next.
        redis: The Redis server.
    """

    now: Iso
    queues: list[QueueFigures]
    leader: str | None
    standby: list[str]
    redis: RedisFigures


class Histogram(Answer):
    """How many messages come due when.

    Attributes:
        bounds: Bounds of the buckets, one more than there are buckets.
        counts: For each queue, how many messages are due from each bound on and before the next one.
        before: For each queue, how many are due before the first bound.
        after: For each queue, how many are due from the last bound on.
        from_: The first bound.
        to: The last bound.
    """

    bounds: list[Iso]
    counts: dict[str, list[Count]]
    before: dict[str, Count]
    after: dict[str, Count]
    to: Iso
    from_: Iso = field(name="from")
