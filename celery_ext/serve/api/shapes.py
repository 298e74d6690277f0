"""What answers about queues, dead letters and bulk actions consist of."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType, field

from celery_ext.serve.api.models import Answer, Count, Iso
from kombu_delayq.store.nodes import State


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
        slot: Its hash slot on a Redis Cluster; else null.
        node: Address of the node that serves the slot; null if nobody does, or it is not known.
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
    slot: Count | None = None
    node: str | None = None
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


class NodeFigures(Answer):
    """A node of a Redis Cluster.

    Attributes:
        node: Its address, `host:port`.
        primary: Address of the primary of a replica; null for a primary.
        state: How it is: `failed` and `suspected` are what the other nodes say, `unreachable` what this server finds,
            and `unlinked` is a replica that has lost its primary.
        slots: Number of hash slots that it serves.
        slot_ranges: First and last slot of each range of them.
        slots_moving: Number of its slots that are on their way to another node.
        used_memory: Bytes in use; null if it does not say.
        maxmemory: Its limit in bytes; 0 without a limit, null if it does not say.
        lag_bytes: How far a replica is behind its primary; null if it is not known.
    """

    node: str
    primary: str | None
    state: State
    slots: Count
    slot_ranges: list[list[Count]]
    slots_moving: Count
    used_memory: Count | None
    maxmemory: Count | None
    lag_bytes: Count | None


class ClusterFigures(Answer):
    """The nodes of a Redis Cluster.

    Attributes:
        slots_uncovered: Number of hash slots that no living node serves; null if the nodes are not known.
        nodes: The nodes.
        error: Why the nodes are not known; null if they are.
    """

    slots_uncovered: Count | None
    nodes: list[NodeFigures]
    error: str | None


class QueueList(Answer):
    """All queues.

    Attributes:
        now: Redis's clock.
        queues: The queues.
        leader: Name of the leading transfer worker; null if nobody leads.
        standby: Names of those that lead next.
        redis: The Redis server; of a cluster, one of its nodes.
        cluster: The nodes of a Redis Cluster; null for a server without hash slots.
    """

    now: Iso
    queues: list[QueueFigures]
    leader: str | None
    standby: list[str]
    redis: RedisFigures
    cluster: ClusterFigures | None = None


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


#: Longest wait of a take, and longest and shortest lease, in s.
LONGEST_WAIT_S, LONGEST_LEASE_S, SHORTEST_LEASE_S = 60.0, 3600.0, 1.0
