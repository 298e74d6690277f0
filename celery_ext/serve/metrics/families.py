"""Makes metrics of a snapshot: their names, types and help texts."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from celery_ext.serve.metrics import cluster, journal
from celery_ext.serve.metrics.snapshot import WITHIN_S, Snapshot
from kombu_delayq import __version__
from kombu_delayq.connection.text import readable
from kombu_delayq.store.viewing.counts import LATENESS_BOUNDS_S

_QUEUE = ("queue",)
_LE = [*map(floatToGoString, LATENESS_BOUNDS_S), "+Inf"]


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
    if snapshot.journal is not None:
        yield from journal.families_of(snapshot.journal)
    if snapshot.cluster is not None:
        yield from cluster.families_of(snapshot.cluster, snapshot.slots)


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
    for queue, counts in snapshot.counts.items():
        for outcome, count in counts.too_late.items():
            too_late.add_metric((readable(queue), outcome), count)
        transferred.add_metric((readable(queue),), counts.transferred)
        lost.add_metric((readable(queue),), counts.lost)
        redelivered.add_metric((readable(queue),), counts.redelivered)
        for operation, count in counts.operations.items():
            operations.add_metric((readable(queue), operation), count)
    yield from (transferred, lost, redelivered, operations, too_late)


def _lateness(snapshot: Snapshot) -> Metric:
    text = "How long after their due time messages went to their queue, by Redis's clock."
    family = HistogramMetricFamily("delayq_delivery_lateness_seconds", text, labels=_QUEUE, unit="seconds")
    for queue, counts in snapshot.counts.items():
        lateness = counts.lateness
        buckets = list(zip(_LE, (*lateness.buckets, lateness.count), strict=True))
        family.add_metric((readable(queue),), buckets, lateness.sum_s)
    return family


def _gauge(name: str, text: str, unit: str = "") -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_QUEUE, unit=unit)
