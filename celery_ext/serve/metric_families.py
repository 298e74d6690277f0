"""The families of metrics: what is known of queues and of the nodes of a cluster, as Prometheus takes it."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from celery_ext.features import modules_of
from celery_ext.health import overview_of
from celery_ext.serve.exposition import Family, counter, gauge, histogram
from celery_ext.waiting import all_queues
from kombu_delayq import __version__
from kombu_delayq.store import Cluster, DelayStore, Place, QueueCounts, QueueStats
from kombu_delayq.text import readable

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)


T = TypeVar("T")

#: Within how many s delayed messages are due that ``delayq_due_within_messages`` counts.
#: Source: org.apache.rocketmq.store.timer.TimerMetrics, timerDist
WITHIN_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


@dataclass(frozen=True)
class MetricsSnapshot:
    """The figures of all queues, as one scrape reads them.

    Attributes:
        leads: Whether a transfer worker leads; None while the node of a cluster that knows it is away.
        queues: Messages of each queue.
        within: By queue, how many delayed messages are due within each of ``WITHIN_S``, overdue ones among them.
        counts: By queue, what has happened to its messages.
        unacked: By queue, how many messages consumers have.
        consumers: By queue, how many consumers it has.
        paused: By queue, whether it is paused.
        dead_letters: By queue of dead letters, how many it holds.
        buried: By queue of dead letters, what has happened to them, where the queue is not in ``counts``.
        brought: Metrics that features bring.
        cluster: The nodes; None on a server without hash slots.
        places: By queue, where it is, also while its node is away; empty on a server without hash slots.
    """

    leads: bool | None
    queues: Sequence[QueueStats]
    within: Mapping[str, Sequence[int]] = field(default_factory=dict)
    counts: Mapping[str, QueueCounts] = field(default_factory=dict)
    unacked: Mapping[str, int] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)
    paused: Mapping[str, bool] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    buried: Mapping[str, QueueCounts] = field(default_factory=dict)
    brought: Sequence[Family] = ()
    cluster: Cluster | None = None
    places: Mapping[str, Place] = field(default_factory=dict)


class SnapshotReader:
    """Reads snapshots. It keeps nothing but what it has warned of.

    Args:
        app: The app, which has queues and routes; None without one.
        declared: Names of queues to show beside those that it and Redis know.
        letters: Names of queues of dead letters beside those that Redis knows.
    """

    def __init__(
        self, app: "Celery[Any] | None" = None, declared: Iterable[str] = (), letters: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._declared = frozenset(declared)
        self._letters = frozenset(letters)
        self._warned = set[str]()

    def read(self, store: DelayStore, may_see: Callable[[str], bool] = lambda queue: True) -> MetricsSnapshot:
        """Reads the figures of the queues that the caller may see, in about ten round trips for each 500.

        While the node of a cluster is away that knows the queues and the leader, these are those of the app.

        Raises:
            RedisError, OSError: Redis does not answer, or refuses even to name and count the queues.
        """
        cluster = store.nodes()
        store = store.unless_away(partial(store.reading, counted=False)) or store
        brought = list[Family]()
        for feature in modules_of("metrics", but="serve"):
            look = partial(list[Family], feature.families(store, may_see))
            brought += self._optional(store, feature.WHAT, look, [])
        figures = store.figures
        letters = {*self._letters, *self._optional(store, "dead letters", store.queues.of_letters, list[str]())}
        paused = self._optional(store, "paused queues", store.fetching.paused, None)
        known = {*all_queues(store, self._app, letters), *(self._declared - letters)}
        names, letters = sorted(filter(may_see, known)), set(filter(may_see, letters))
        found = {stats.queue: stats for stats in overview_of(store, sorted({*names, *letters}))}
        for stats in found.values():
            if stats.error:
                self._warn(f"queue {stats.queue!r}", stats.error)
        places = {} if cluster is None else {name: cluster.place_of(name) for name in names}
        stats_of = [found[name] for name in names if not found[name].error]
        names, overdue = [stats.queue for stats in stats_of], {stats.queue for stats in stats_of if stats.overdue}
        now_ms = max((stats.now_ms for stats in stats_of), default=0.0)
        unacked = self._optional(store, "messages in hand", figures.held, None)
        consumers = self._optional(store, "consumers", store.consumers.by_queue, None)
        return MetricsSnapshot(
            store.unless_away(lambda: store.leases.leader() is not None),
            stats_of,
            self._optional(store, "due times", lambda: _within(store, stats_of, now_ms), {}),
            self._optional(store, "counters", lambda: figures.counts(names, overdue), {}),
            {} if unacked is None else {name: unacked.get(name, 0) for name in names},
            {} if consumers is None else {name: consumers[name] for name in names},
            {} if paused is None else {name: name in paused for name in names},
            {name: found[name].ready for name in sorted(letters) if not found[name].error},
            self._optional(store, "counters", lambda: figures.counts(sorted(letters.difference(names)), ()), {}),
            brought,
            cluster,
            places,
        )

    def _optional(self, store: DelayStore, what: str, look: Callable[[], T], missing: T) -> T:
        """Returns what a function finds, or ``missing`` where Redis refuses it, such as for a right or a key's type."""
        try:
            return look()
        except store.pool.partial_errors as error:
            self._warn(what, str(error))
            return missing

    def _warn(self, what: str, error: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("metrics leave out %s: %s", what, readable(error))


def _within(store: DelayStore, queues: Sequence[QueueStats], now_ms: float) -> dict[str, list[int]]:
    """Counts what is due within each of ``WITHIN_S``; Redis is asked only about queues that have delayed messages."""
    bounds = [-inf, *(now_ms + within_s * 1000 for within_s in WITHIN_S)]
    found = store.figures.due_counts([stats.queue for stats in queues if stats.delayed], bounds)
    none = {stats.queue: [0] * len(WITHIN_S) for stats in queues if not stats.delayed}
    return none | {queue: list(accumulate(counts)) for queue, counts in found.items()}


_QUEUE = ("queue",)


def up(reached: bool) -> Family:
    """Returns the metric that says whether Redis answered."""
    text = "Whether Redis answered this scrape: 1 or 0. With 0 there are no other metrics."
    return gauge("delayq_redis_up", text, (), {(): float(reached)})


def all_of(snapshot: MetricsSnapshot) -> Iterator[Family]:
    """Yields every metric of a snapshot, but ``up``."""
    text = "Always 1; the label has the version of kombu-delayq that answers."
    yield gauge("delayq_build_info", text, ["version"], {__version__: 1})
    text = "Whether a transfer worker leads: 1 or 0; absent if not known. With 0, nothing that comes due is delivered."
    yield gauge("delayq_leader_present", text, (), {} if snapshot.leads is None else {(): float(snapshot.leads)})
    yield from _messages(snapshot)
    yield from _counted(snapshot)
    yield from _durations(snapshot)
    yield from snapshot.brought
    if snapshot.cluster is not None:
        yield from _cluster(snapshot.cluster, snapshot.places)


def _messages(snapshot: MetricsSnapshot) -> Iterator[Family]:
    queues = {stats.queue: stats for stats in snapshot.queues}
    text = "Messages that wait for their due time, overdue ones among them."
    yield gauge("delayq_delayed_messages", text, _QUEUE, {name: stats.delayed for name, stats in queues.items()})
    text = "Messages that wait in the queue for a consumer, of all priorities."
    yield gauge("delayq_ready_messages", text, _QUEUE, {name: stats.ready for name, stats in queues.items()})
    text = "Ready messages that may not go now, because of a limit by key; more workers would not run them sooner."
    yield gauge("delayq_limited_messages", text, _QUEUE, {name: stats.limited for name, stats in queues.items()})
    text = "Delayed messages whose due time is past."
    yield gauge("delayq_overdue_messages", text, _QUEUE, {name: stats.overdue for name, stats in queues.items()})
    text = "Overdue messages that the transfer_rate of their queue holds back; 0 if it holds none back."
    held = {name for name, counts in snapshot.counts.items() if name in queues and counts.holding(queues[name])}
    found = {name: stats.overdue if name in held else 0 for name, stats in queues.items()}
    yield gauge("delayq_held_back_messages", text, _QUEUE, found)
    text = "Messages that consumers have and have not acknowledged."
    yield gauge("delayq_unacked_messages", text, _QUEUE, snapshot.unacked)
    yield gauge("delayq_dead_letter_messages", "Messages in a queue of dead letters.", _QUEUE, snapshot.dead_letters)
    text = "Consumers of the queue whose lease lasts, except those that consume in kombu's own way."
    yield gauge("delayq_consumers", text, _QUEUE, snapshot.consumers)
    text = "Whether somebody has paused the queue: 1 or 0."
    yield gauge("delayq_queue_paused", text, _QUEUE, snapshot.paused)
    text = "How long the oldest overdue message has been due, by Redis's clock; 0 if none is overdue."
    found_s = {name: stats.overdue_ms / 1000 for name, stats in queues.items()}
    yield gauge("delayq_overdue_seconds", text, _QUEUE, found_s, "seconds")
    text = "When the next delayed message is due, in seconds since the epoch; absent while no message waits."
    found_s = {name: stats.next_due_ms / 1000 for name, stats in queues.items() if stats.next_due_ms is not None}
    yield gauge("delayq_next_due_timestamp_seconds", text, _QUEUE, found_s, "seconds")
    text = "Delayed messages that are due within so many seconds from now, overdue ones among them."
    within = {
        (name, str(within_s)): count
        for name, counts in snapshot.within.items()
        for within_s, count in zip(WITHIN_S, counts, strict=True)
    }
    yield gauge("delayq_due_within_messages", text, ("queue", "within"), within)


def _counted(snapshot: MetricsSnapshot) -> Iterator[Family]:
    counts, everywhere = snapshot.counts, {**snapshot.counts, **snapshot.buried}
    text = "Messages that came due and went to their queue."
    found = {queue: each.transferred for queue, each in counts.items()}
    yield counter("delayq_transferred_messages", text, _QUEUE, found)
    text = "Messages that came due without a body: their content is lost."
    yield counter("delayq_lost_messages", text, _QUEUE, {queue: each.lost for queue, each in counts.items()})
    text = "Messages that went back to their queue because the consumer that had them died, or gave them back."
    found = {queue: each.redelivered for queue, each in counts.items()}
    yield counter("delayq_redelivered_messages", text, _QUEUE, found)
    text = "Messages to which somebody did this: cancel, reschedule, run_now, purge, replay or drop."
    yield _by("operation", "delayq_operations", text, {queue: each.operations for queue, each in everywhere.items()})
    text = "Messages that came due too late for max_lateness: dropped or dead-lettered."
    yield _by("outcome", "delayq_too_late_messages", text, {queue: each.too_late for queue, each in counts.items()})
    text = "Tasks that failed: retried, failed for good, or dead-lettered, which counts for the queue that gets them."
    yield _by("outcome", "delayq_failures", text, {queue: each.failures for queue, each in everywhere.items()})


def _by(label: str, name: str, text: str, counts: Mapping[str, Mapping[str, int]]) -> Family:
    values = {(queue, what): count for queue, found in counts.items() for what, count in found.items()}
    return counter(name, text, ("queue", label), values)


def _durations(snapshot: MetricsSnapshot) -> Iterator[Family]:
    text = "How long after their due time messages went to their queue, by Redis's clock."
    late = {queue: counts.lateness for queue, counts in snapshot.counts.items() if counts.lateness.count}
    yield histogram("delayq_delivery_lateness_seconds", text, _QUEUE, late, "seconds")
    text = "How long the oldest ready message has been waiting for a consumer; 0 if none is ready, absent if unknown."
    oldest = {stats.queue: stats.oldest_ready_s for stats in snapshot.queues if stats.oldest_ready_s is not None}
    yield gauge("delayq_oldest_ready_seconds", text, _QUEUE, oldest, "seconds")
    text = "How long messages waited in their queue before a worker took them, by the worker's clock, in whole seconds."
    waits = {queue: counts.waits for queue, counts in snapshot.counts.items() if counts.waits.count}
    yield histogram("delayq_queue_wait_seconds", text, _QUEUE, waits, "seconds")
    text = "Messages that a worker took of which nothing says for how long they had waited."
    unknown = {queue: counts.waits_unknown for queue, counts in snapshot.counts.items()}
    yield counter("delayq_queue_wait_unknown_messages", text, _QUEUE, unknown)


def _cluster(cluster: Cluster, places: Mapping[str, Place]) -> Iterator[Family]:
    """Yields the metrics of nodes, and which queue is on which. A service that hides its nodes has no series."""
    if cluster.uncovered is not None:
        text = "Hash slots that no living node serves. Queues in them can be neither published to nor consumed."
        yield gauge("delayq_cluster_uncovered_slots", text, (), {(): cluster.uncovered})
    nodes, down = cluster.nodes, cluster.down
    text = "Whether a node answers, is not given up by the others, and, if a replica, follows its primary: 1 or 0."
    lives = {(node.name, node.role): node not in down for node in nodes}
    yield gauge("delayq_cluster_node_up", text, ("node", "role"), lives)
    text = "Memory that a node uses; absent while it does not answer."
    used = {(node.name, node.role): node.memory.used for node in nodes if node.memory is not None}
    yield gauge("delayq_cluster_node_memory_bytes", text, ("node", "role"), used, "bytes")
    text = "How far a replica is behind its primary: what a failover would lose now."
    lag = {node.name: node.lag_bytes for node in nodes if node.lag_bytes is not None}
    yield gauge("delayq_cluster_replica_lag_bytes", text, ["node"], lag, "bytes")
    text = "The hash slot of a queue, and the node that serves it."
    found = {(queue, place.node or ""): place.slot for queue, place in places.items()}
    yield gauge("delayq_cluster_queue_slot", text, ("queue", "node"), found)
