"""``/v1/queues``: what queues hold, and what comes due when."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field
from starlette.requests import Request

from celery_ext.health import count_queues
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import Answer, Count, Endpoints, Iso, Moment, Strict, iso
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of, visible_queues
from kombu_delayq.message import ms_of
from kombu_delayq.store import LATENESS_BOUNDS_S, Cluster, DelayStore, HeldBack, QueueStats, State


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
        limited: How many of them may not go now, because of a limit by key.
        oldest_ready_s: How long the oldest of the others has been waiting, in s; 0 without any, null if unknown.
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
        paused_since: Since when it is paused; null if it is not.
        slot: Its hash slot on a Redis Cluster; else null.
        node: Address of the node that serves the slot; null if nobody does, or it is not known.
        error: Why Redis refuses to count the queue; the numbers are 0 then.
    """

    queue: str
    delayed: Count
    in_journal: Count
    ready: Count
    limited: Count
    oldest_ready_s: float | None
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
    paused_since: Iso | None
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
        leader: Name of the leading transfer worker; null if nobody leads, or the node that knows it is away.
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


class PauseDone(Answer):
    """What became of a pause.

    Attributes:
        outcome: `unchanged` if the queue was paused, or not, before.
    """

    outcome: Literal["paused", "resumed", "unchanged"]


endpoint = Endpoints("Queues")
_ONE = "/v1/queues/{queue:name}"
#: In place of the name of a queue: all queues.
EVERY = "*"
#: Length of a histogram if the query has no end, in ms.
_HOUR_MS = 3_600_000


@endpoint("POST", _ONE + ":pause", Action.PAUSE)
def pause_queue(request: Request) -> PauseDone:
    """Pause a queue: consumers take nothing more from it."""
    outcome = changes.pause_queue(serve_of(request), caller_of(request), request.path_params["queue"])
    return PauseDone(outcome=outcome)


@endpoint("POST", _ONE + ":resume", Action.PAUSE)
def resume_queue(request: Request) -> PauseDone:
    """Resume a paused queue."""
    outcome = changes.resume_queue(serve_of(request), caller_of(request), request.path_params["queue"])
    return PauseDone(outcome=outcome)


@endpoint("GET", "/v1/queues", Action.READ)
def list_queues(request: Request) -> QueueList:
    """Count what all queues hold."""
    store = serve_of(request).store
    cluster = store.nodes()
    memory = store.memory()
    return QueueList(
        now=iso(store.now_ms()),
        queues=list(_figures(store, visible_queues(request), cluster)),
        leader=store.unless_away(store.leases.leader),
        standby=store.if_allowed(store.leases.standbys) or [],
        redis=RedisFigures(used_memory=memory.used, maxmemory=memory.limit, version=memory.version),
        cluster=None if cluster is None else _cluster(cluster),
    )


@endpoint("GET", _ONE + "/histogram", Action.READ)
def histogram(request: Request, query: HistogramQuery) -> Histogram:
    """Count what comes due when, in one queue, or in each if the name is `*`."""
    store, caller, queue = serve_of(request).store, caller_of(request), request.path_params["queue"]
    if queue == EVERY:
        shown = visible_queues(request)
    else:
        caller.check(Action.READ, queue=queue)
        shown = [queue]
    from_ms = store.now_ms() if query.from_ is None else ms_of(query.from_)
    to_ms = from_ms + _HOUR_MS if query.to is None else ms_of(query.to)
    if not from_ms < to_ms:
        raise bad_request("the span ends before it begins", "bad-span")
    length_ms = to_ms - from_ms
    bounds = [from_ms + length_ms * at / query.buckets for at in range(query.buckets)] + [to_ms]
    counts = store.figures.due_counts(shown, [-inf, *bounds, inf])
    if queue != EVERY and not any(map(sum, counts.values())) and queue not in visible_queues(request):
        raise _unknown(queue)
    return Histogram(
        bounds=list(map(iso, bounds)),
        counts={name: found[1:-1] for name, found in counts.items()},
        before={name: found[0] for name, found in counts.items()},
        after={name: found[-1] for name, found in counts.items()},
        from_=iso(from_ms),
        to=iso(to_ms),
    )


@endpoint("GET", _ONE, Action.READ)
def show_queue(request: Request) -> QueueFigures:
    """Count what a queue holds."""
    queue = request.path_params["queue"]
    caller_of(request).check(Action.READ, queue=queue)
    store = serve_of(request).store
    [found] = _figures(store, [queue], store.nodes())
    if not (found.delayed or found.ready or found.unacked or found.error) and queue not in visible_queues(request):
        raise _unknown(queue)
    return found


def _unknown(queue: str) -> Problem:
    return Problem(404, "nobody has delayed a task for this queue, and it holds none", "unknown-queue", queue=queue)


def _figures(store: DelayStore, names: Sequence[str], cluster: Cluster | None) -> Iterator[QueueFigures]:
    letters = set(store.if_allowed(store.queues.of_letters) or ()) if names else set()
    for stats, counts, unacked, consumers, paused_ms, slot, node in count_queues(store, names, cluster):
        figures = QueueFigures(
            queue=stats.queue,
            delayed=stats.delayed,
            in_journal=stats.beside,
            ready=stats.ready,
            limited=stats.limited,
            oldest_ready_s=None if stats.oldest_ready_s is None else round(stats.oldest_ready_s, 3),
            overdue=stats.overdue,
            overdue_by_s=round(stats.overdue_ms / 1000, 3) if stats.overdue else 0.0,
            held_back=_held_back(stats, counts.holding(stats)),
            too_late=counts.too_late,
            unacked=unacked,
            dead_letters=stats.ready if stats.queue in letters else None,
            next_due=None if stats.next_due_ms is None else iso(stats.next_due_ms),
            lateness_p50_s=_known(counts.lateness.quantile(0.5)),
            lateness_p99_s=_known(counts.lateness.quantile(0.99)),
            transferred=counts.transferred,
            consumers=consumers,
            paused_since=None if paused_ms is None else iso(paused_ms),
            slot=slot,
            node=node,
        )
        if stats.error:
            figures.error = stats.error
        yield figures


def _cluster(cluster: Cluster) -> ClusterFigures:
    return ClusterFigures(
        slots_uncovered=cluster.uncovered,
        error=cluster.error or None,
        nodes=[
            NodeFigures(
                node=node.name,
                primary=node.primary or None,
                state=node.state,
                slots=node.count,
                slot_ranges=[list(ends) for ends in node.ranges],
                slots_moving=node.moving,
                used_memory=node.memory and node.memory.used,
                maxmemory=node.memory and node.memory.limit,
                lag_bytes=node.lag_bytes,
            )
            for node in cluster.nodes
        ],
    )


def _held_back(stats: QueueStats, held: HeldBack | None) -> HeldBackFigures | None:
    if held is None:
        return None
    until = iso(held.clear_ms(stats.now_ms, stats.overdue))
    return HeldBackFigures(per_s=held.per_s, burst=held.burst, until=until)


def _known(lateness_s: float | None) -> float | None:
    """Returns a lateness in JSON: beyond the last bound, which has no number, that bound."""
    return None if lateness_s is None else round(min(lateness_s, LATENESS_BOUNDS_S[-1]), 6)
