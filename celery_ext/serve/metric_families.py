"""The families of metrics: what is known of queues, the journal and the nodes of a cluster, as Prometheus takes it."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from celery_ext.periodic.control import Listed, list_entries
from kombu_delayq import __version__
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.counts import LATENESS_BOUNDS_S, WAIT_BOUNDS_S, QueueCounts, QueueStats
from kombu_delayq.store.nodes import Cluster
from kombu_delayq.text import readable

if TYPE_CHECKING:
    from celery_ext.journal import JournalState

logger = logging.getLogger(__name__)


def families_of_cluster(cluster: Cluster, slots: Mapping[str, int]) -> Iterator[Metric]:
    """Yields the metrics of nodes, and which queue is on which. A service that hides its nodes has no series.

    Args:
        cluster: The nodes.
        slots: By queue, its hash slot.
    """
    if cluster.uncovered is not None:
        text = "Hash slots that no living node serves. Queues in them can be neither published to nor consumed."
        yield GaugeMetricFamily("delayq_cluster_uncovered_slots", text, value=cluster.uncovered)
    text = "Whether a node answers, is not given up by the others, and, if a replica, follows its primary: 1 or 0."
    up = GaugeMetricFamily("delayq_cluster_node_up", text, labels=("node", "role"))
    text = "Memory that a node uses; absent while it does not answer."
    memory = GaugeMetricFamily("delayq_cluster_node_memory_bytes", text, labels=("node", "role"), unit="bytes")
    text = "How far a replica is behind its primary: what a failover would lose now."
    lag = GaugeMetricFamily("delayq_cluster_replica_lag_bytes", text, labels=("node",), unit="bytes")
    down = {node.id for node in cluster.down}
    for node in cluster.nodes:
        up.add_metric((node.name, node.role), float(node.id not in down))
        if node.memory is not None:
            memory.add_metric((node.name, node.role), node.memory.used)
        if node.lag_bytes is not None:
            lag.add_metric((node.name,), node.lag_bytes)
    text = "The hash slot of a queue, and the node that serves it."
    of_queue = GaugeMetricFamily("delayq_cluster_queue_slot", text, labels=("queue", "node"))
    for queue, slot in slots.items():
        of_queue.add_metric((readable(queue), cluster.node_of(slot) or ""), slot)
    yield from (up, memory, lag, of_queue)


def families_of_journal(state: "JournalState") -> Iterator[Metric]:
    """Yields the metrics of a journal. While its database is away, only whether it answers, and who promotes."""
    text = "Whether the database of the journal answered this scrape: 1 or 0."
    yield GaugeMetricFamily("delayq_journal_up", text, value=float(state.error is None))
    text = "Whether a process promotes messages of the journal: 1 or 0. With 0, what waits there is not delivered."
    yield GaugeMetricFamily("delayq_journal_promoter_present", text, value=float(state.promoter is not None))
    if state.error is not None:
        return
    text = "Whether Redis has lost data that is not restored: 1 or 0."
    yield GaugeMetricFamily("delayq_journal_lost", text, value=float(state.has_lost))
    text = "Rows of the journal: waiting (only the journal has the message) or offered (Redis was given it)."
    rows = GaugeMetricFamily("delayq_journal_messages", text, labels=("queue", "state"))
    for word, counts in (("waiting", state.waiting), ("offered", state.offered)):
        for queue, count in counts.items():
            rows.add_metric((readable(queue), word), count)
    yield rows
    text = "For how long the oldest message that should be in Redis by now has been waiting for that."
    yield GaugeMetricFamily("delayq_journal_promotion_lag_seconds", text, value=state.lag_s, unit="seconds")
    text = "How far behind Redis's clock the note is of what has left Redis; absent before the first."
    age = GaugeMetricFamily("delayq_journal_watermark_age_seconds", text, unit="seconds", labels=())
    if state.watermark_age_s is not None:
        age.add_metric((), state.watermark_age_s)
    yield age
    text = "Messages that were promoted from the journal to Redis."
    yield CounterMetricFamily("delayq_journal_promoted_messages", text, value=state.promoted)
    text = "Messages that wait again after a loss of Redis."
    yield CounterMetricFamily("delayq_journal_restored_messages", text, value=state.restored)
    text = "Size of the tables of the journal and their indexes."
    yield GaugeMetricFamily("delayq_journal_size_bytes", text, value=state.size_bytes or 0, unit="bytes")


T = TypeVar("T")

#: Within how many s delayed messages are due that ``delayq_due_within_messages`` counts.
#: Source: org.apache.rocketmq.store.timer.TimerMetrics, timerDist
WITHIN_S = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)


@dataclass(frozen=True)
class Snapshot:
    """The figures of all queues, as one scrape reads them.

    Attributes:
        leads: Whether a transfer worker leads.
        queues: Messages of each queue.
        within: By queue, how many delayed messages are due within each of ``WITHIN_S``, overdue ones among them.
        counts: By queue, what has happened to its messages.
        unacked: By queue, how many messages consumers have.
        consumers: By queue, how many consumers it has.
        paused: By queue, whether it is paused.
        dead_letters: By queue of dead letters, how many it holds.
        buried: By queue of dead letters, what has happened to them, where the queue is not in ``counts``.
        journal: How the journal is, with the rows of these queues; None without one.
        cluster: The nodes; None on a server without hash slots.
        slots: By queue, its hash slot, also while its node is away; empty on a server without them.
        periodic: The periodic entries.
        arms: Whether a process arms them.
        now_ms: Redis's clock.
    """

    leads: bool
    queues: Sequence[QueueStats]
    within: Mapping[str, Sequence[int]] = field(default_factory=dict)
    counts: Mapping[str, QueueCounts] = field(default_factory=dict)
    unacked: Mapping[str, int] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)
    paused: Mapping[str, bool] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    buried: Mapping[str, QueueCounts] = field(default_factory=dict)
    journal: "JournalState | None" = None
    cluster: Cluster | None = None
    slots: Mapping[str, int] = field(default_factory=dict)
    periodic: Sequence[Listed] = ()
    arms: bool = False
    now_ms: float = 0.0


class SnapshotReader:
    """Reads snapshots. It keeps nothing but what it has warned of.

    Args:
        declared: Returns names of queues to show beside those that Redis knows.
        letters: Names of queues of dead letters beside those that Redis knows.
    """

    def __init__(self, declared: Callable[[], Iterable[str]] = tuple, letters: Iterable[str] = ()) -> None:
        self._declared = declared
        self._letters = frozenset(letters)
        self._warned = set[str]()

    def read(self, store: OperatorStore, may_see: Callable[[str], bool] = lambda queue: True) -> Snapshot:
        """Reads the figures of the queues that the caller may see, in about eight round trips.

        Consumers of other queues are not asked for their names: names of reply queues would never end.

        Raises:
            RedisError, OSError: Redis does not answer, or refuses even to name and count the queues.
        """
        store, journal = store.look_at_journal(counted=False)
        cluster = store.nodes.overview()
        if journal is not None:
            waiting, offered = (
                {queue: count for queue, count in counts.items() if may_see(queue)}
                for counts in (journal.waiting, journal.offered)
            )
            journal = journal._replace(waiting=waiting, offered=offered)
        figures = store.figures
        letters = {*self._letters, *self._optional(store, "dead letters", store.letters.queues, list[str]())}
        paused = self._optional(store, "paused queues", store.fetching.paused, None)
        known = {*store.queues.names(), *(set(self._declared()) - letters), *(paused or ())}
        names, letters = sorted(filter(may_see, known)), set(filter(may_see, letters))
        found = {stats.queue: stats for stats in figures.overview(sorted({*names, *letters}))}
        for stats in found.values():
            if stats.error:
                self._warn(f"queue {stats.queue!r}", stats.error)
        slots = {name: slot for name in names if (slot := store.nodes.slot_of(name)) is not None}
        stats_of = [found[name] for name in names if not found[name].error]
        names = [stats.queue for stats in stats_of]
        now_ms = max((stats.now_ms for stats in stats_of), default=0.0)
        unacked = self._optional(store, "messages in hand", figures.held, None)
        consumers = self._optional(store, "consumers", store.consumers.by_queue, None)
        entries = self._optional(store, "periodic entries", lambda: list_entries(store), list[Listed]())
        return Snapshot(
            store.leases.leader() is not None,
            stats_of,
            self._optional(store, "due times", lambda: _within(store, names, now_ms), {}),
            self._optional(store, "counters", lambda: figures.counts(names), {}),
            {} if unacked is None else {name: unacked.get(name, 0) for name in names},
            {} if consumers is None else {name: consumers[name] for name in names},
            {} if paused is None else {name: name in paused for name in names},
            {name: found[name].ready for name in sorted(letters) if not found[name].error},
            self._optional(store, "counters", lambda: figures.counts(sorted(letters.difference(names))), {}),
            journal,
            cluster,
            slots,
            [entry for entry in entries if all(map(may_see, entry.queues))],
            bool(entries) and self._optional(store, "who arms", store.periodic.leader, None) is not None,
            store.now_ms() if entries else 0.0,
        )

    def _optional(self, store: OperatorStore, what: str, look: Callable[[], T], missing: T) -> T:
        """Returns what a function finds, or ``missing`` where Redis refuses it, such as for a right or a key's type."""
        try:
            return look()
        except store.nodes.errors as error:
            self._warn(what, str(error))
            return missing

    def _warn(self, what: str, error: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("metrics leave out %s: %s", what, readable(error))


def _within(store: OperatorStore, queues: Sequence[str], now_ms: float) -> dict[str, list[int]]:
    bounds = [-inf, *(now_ms + within_s * 1000 for within_s in WITHIN_S)]
    return {queue: list(accumulate(counts)) for queue, counts in store.figures.due_counts(queues, bounds).items()}


_QUEUE = ("queue",)
_LE = [*map(floatToGoString, LATENESS_BOUNDS_S), "+Inf"]
_WAIT_LE = [*map(floatToGoString, WAIT_BOUNDS_S), "+Inf"]


def up(reached: bool) -> Metric:
    """Returns the metric that says whether Redis answered."""
    text = "Whether Redis answered this scrape: 1 or 0. With 0 there are no other metrics."
    return GaugeMetricFamily("delayq_redis_up", text, value=float(reached))


def all_of(snapshot: Snapshot) -> Iterator[Metric]:
    """Yields every metric of a snapshot, but ``up``."""
    text = "Always 1; the label has the version of kombu-delayq that answers."
    build = GaugeMetricFamily("delayq_build_info", text, labels=("version",))
    build.add_metric((__version__,), 1)
    yield build
    text = "Whether a transfer worker leads: 1 or 0. With 0, nothing that comes due is delivered."
    yield GaugeMetricFamily("delayq_leader_present", text, value=float(snapshot.leads))
    yield from _messages(snapshot)
    yield from _due(snapshot)
    yield from _counted(snapshot)
    yield _lateness(snapshot)
    yield from _waits(snapshot)
    if snapshot.periodic:
        yield from _periodic(snapshot)
    if snapshot.journal is not None:
        yield from families_of_journal(snapshot.journal)
    if snapshot.cluster is not None:
        yield from families_of_cluster(snapshot.cluster, snapshot.slots)


def _messages(snapshot: Snapshot) -> Iterator[Metric]:
    delayed = _gauge("delayq_delayed_messages", "Messages that wait for their due time, overdue ones among them.")
    ready = _gauge("delayq_ready_messages", "Messages that wait in the queue for a consumer, of all priorities.")
    overdue = _gauge("delayq_overdue_messages", "Delayed messages whose due time is past.")
    for stats in snapshot.queues:
        delayed.add_metric((readable(stats.queue),), stats.delayed)
        ready.add_metric((readable(stats.queue),), stats.ready)
        overdue.add_metric((readable(stats.queue),), stats.overdue)
    text = "Overdue messages that the transfer_rate of their queue holds back; 0 if it holds none back."
    held = _gauge("delayq_held_back_messages", text)
    for stats in snapshot.queues:
        of_queue = snapshot.counts.get(stats.queue)
        is_held = of_queue is not None and of_queue.holding(stats) is not None
        held.add_metric((readable(stats.queue),), stats.overdue if is_held else 0)
    yield from (delayed, ready, overdue, held)
    for name, text, values in (
        ("delayq_unacked_messages", "Messages that consumers have and have not acknowledged.", snapshot.unacked),
        ("delayq_dead_letter_messages", "Messages in a queue of dead letters.", snapshot.dead_letters),
        (
            "delayq_consumers",
            "Consumers of the queue whose lease lasts, except those that consume in kombu's own way.",
            snapshot.consumers,
        ),
        ("delayq_queue_paused", "Whether somebody has paused the queue: 1 or 0.", snapshot.paused),
    ):
        family = _gauge(name, text)
        for queue, value in values.items():
            family.add_metric((readable(queue),), value)
        yield family


def _due(snapshot: Snapshot) -> Iterator[Metric]:
    text = "How long the oldest overdue message has been due, by Redis's clock; 0 if none is overdue."
    overdue = _gauge("delayq_overdue_seconds", text, "seconds")
    text = "When the next delayed message is due, in seconds since the epoch; absent while no message waits."
    next_due = _gauge("delayq_next_due_timestamp_seconds", text, "seconds")
    for stats in snapshot.queues:
        overdue.add_metric((readable(stats.queue),), stats.overdue_ms / 1000)
        if stats.next_due_ms is not None:
            next_due.add_metric((readable(stats.queue),), stats.next_due_ms / 1000)
    yield from (overdue, next_due)
    text = "Delayed messages that are due within so many seconds from now, overdue ones among them."
    within = GaugeMetricFamily("delayq_due_within_messages", text, labels=("queue", "within"))
    for queue, counts in snapshot.within.items():
        for within_s, count in zip(WITHIN_S, counts, strict=True):
            within.add_metric((readable(queue), str(within_s)), count)
    yield within


def _counted(snapshot: Snapshot) -> Iterator[Metric]:
    text = "Messages that came due and went to their queue."
    transferred = CounterMetricFamily("delayq_transferred_messages", text, labels=_QUEUE)
    text = "Messages that came due without a body: their content is lost."
    lost = CounterMetricFamily("delayq_lost_messages", text, labels=_QUEUE)
    text = "Messages that went back to their queue because the consumer that had them died, or gave them back."
    redelivered = CounterMetricFamily("delayq_redelivered_messages", text, labels=_QUEUE)
    text = "Messages to which somebody did this: cancel, reschedule, run_now, purge, replay or drop."
    operations = CounterMetricFamily("delayq_operations", text, labels=("queue", "operation"))
    text = "Messages that came due too late for max_lateness: dropped or dead-lettered."
    too_late = CounterMetricFamily("delayq_too_late_messages", text, labels=("queue", "outcome"))
    text = "Tasks that failed: retried, failed for good, or dead-lettered, which counts for the queue that gets them."
    failures = CounterMetricFamily("delayq_failures", text, labels=("queue", "outcome"))
    for queue, counts in (*snapshot.counts.items(), *snapshot.buried.items()):
        for outcome, count in counts.failures.items():
            failures.add_metric((readable(queue), outcome), count)
        for operation, count in counts.operations.items():
            operations.add_metric((readable(queue), operation), count)
    for queue, counts in snapshot.counts.items():
        for outcome, count in counts.too_late.items():
            too_late.add_metric((readable(queue), outcome), count)
        transferred.add_metric((readable(queue),), counts.transferred)
        lost.add_metric((readable(queue),), counts.lost)
        redelivered.add_metric((readable(queue),), counts.redelivered)
    yield from (transferred, lost, redelivered, operations, too_late, failures)


def _lateness(snapshot: Snapshot) -> Metric:
    text = "How long after their due time messages went to their queue, by Redis's clock."
    family = HistogramMetricFamily("delayq_delivery_lateness_seconds", text, labels=_QUEUE, unit="seconds")
    for queue, counts in snapshot.counts.items():
        lateness = counts.lateness
        buckets = list(zip(_LE, (*lateness.buckets, lateness.count), strict=True))
        family.add_metric((readable(queue),), buckets, lateness.sum_s)
    return family


def _waits(snapshot: Snapshot) -> Iterator[Metric]:
    text = "How long the oldest ready message has been waiting for a consumer; 0 if none is ready, absent if unknown."
    oldest = _gauge("delayq_oldest_ready_seconds", text, "seconds")
    for stats in snapshot.queues:
        if stats.oldest_ready_s is not None:
            oldest.add_metric((readable(stats.queue),), stats.oldest_ready_s)
    text = "How long messages waited in their queue before a worker took them, by the worker's clock, in whole seconds."
    family = HistogramMetricFamily("delayq_queue_wait_seconds", text, labels=_QUEUE, unit="seconds")
    text = "Messages that a worker took of which nothing says for how long they had waited."
    unknown = CounterMetricFamily("delayq_queue_wait_unknown_messages", text, labels=_QUEUE)
    for queue, counts in snapshot.counts.items():
        waits = counts.waits
        buckets = list(zip(_WAIT_LE, (*waits.buckets, waits.count), strict=True))
        family.add_metric((readable(queue),), buckets, waits.sum_s)
        unknown.add_metric((readable(queue),), waits.unknown)
    yield from (oldest, family, unknown)


def _periodic(snapshot: Snapshot) -> Iterator[Metric]:
    text = "Whether a process arms periodic entries: 1 or 0. With 0, entries end after the runs that are armed."
    yield GaugeMetricFamily("delayq_periodic_armer_present", text, value=float(snapshot.arms))
    text = "How long ago the last run of a periodic entry was sent to its queue; absent before the first."
    since = GaugeMetricFamily("delayq_periodic_since_last_run_seconds", text, labels=("entry",), unit="seconds")
    text = "How soon the next run of a periodic entry is due; below 0 when it is overdue, absent while none is armed."
    until = GaugeMetricFamily("delayq_periodic_until_next_run_seconds", text, labels=("entry",), unit="seconds")
    text = (
        "1 for a periodic entry that cannot be sent; the log of the worker that arms, and `delayq periodic`, say why."
    )
    wrong = GaugeMetricFamily("delayq_periodic_wrong", text, labels=("entry",))
    for entry in snapshot.periodic:
        if entry.last_ms is not None:
            since.add_metric((readable(entry.name),), (snapshot.now_ms - entry.last_ms) / 1000)
        if entry.next_ms is not None:
            until.add_metric((readable(entry.name),), (entry.next_ms - snapshot.now_ms) / 1000)
        wrong.add_metric((readable(entry.name),), float(entry.state == "wrong"))
    yield from (since, until, wrong)


def _gauge(name: str, text: str, unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_QUEUE, unit=unit)
