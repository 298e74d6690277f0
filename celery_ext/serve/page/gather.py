"""Reads the figures that the page shows, in a few round trips, however many queues there are."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import ResponseError

from celery_ext.serve.page.chart import bounds, small_bars
from celery_ext.serve.page.figures import QueueRow, late, moment, number
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.queues import QueueStats
from kombu_delayq.store.viewing.figures import QueueCounts


@dataclass(frozen=True)
class Gathered:
    """The figures of some queues.

    Attributes:
        now_ms: Redis's clock, ms since the epoch.
        rows: What the page shows of each queue.
        due: How many messages of each queue come due when: counts of ``chart.bounds``.
    """

    now_ms: float
    rows: list[QueueRow]
    due: dict[str, list[int]]


def gather(store: OperatorStore, queues: Sequence[str], span: str) -> Gathered:
    """Reads the figures of queues.

    Args:
        store: The broker's store.
        queues: Their names.
        span: A key of ``chart.SPANS``.
    """
    now_ms = store.now_ms()
    stats = store.figures.overview(queues)
    counts = store.figures.counts(queues)
    ends = bounds(now_ms, span)
    due = store.figures.due_counts(queues, ends)
    held, consumers = _held(store), _consumers(store)
    rows = [_row(found, counts[found.queue], due.get(found.queue, []), held, consumers) for found in stats]
    return Gathered(now_ms, rows, due)


def _row(
    stats: QueueStats,
    counts: QueueCounts,
    due: Sequence[int],
    held: dict[str, int] | None,
    consumers: Counter[str] | None,
) -> QueueRow:
    held_back = counts.holding(stats)
    p50, p99 = (late(counts.lateness.quantile(share)) for share in (0.5, 0.99))
    return QueueRow(
        stats.queue,
        stats.delayed,
        stats.ready,
        stats.overdue,
        stats.overdue_ms / 1000 if stats.overdue else 0.0,
        None if held is None else held.get(stats.queue, 0),
        moment(stats.next_due_ms, stats.now_ms),
        p50,
        p99,
        None if consumers is None else consumers[stats.queue],
        f"held back by its rate, {number(stats.overdue)} wait, at {held_back.per_s:g}/s" if held_back else "",
        moment(held_back.clear_ms(stats.now_ms, stats.overdue), stats.now_ms) if held_back else None,
        ", ".join(f"{number(count)} {what}" for what, count in counts.too_late.items() if count),
        stats.error,
        small_bars(due),
        f"{sum(due[1:-1]):,} come due in the time of the chart",
        stats.in_journal,
    )


def _held(store: OperatorStore) -> dict[str, int] | None:
    """Returns the number of messages in hand by queue; None for a user without the right to know."""
    try:
        return store.figures.held()
    except ResponseError:
        return None


def _consumers(store: OperatorStore) -> Counter[str] | None:
    """Returns the number of consumers that live by queue; None for a user without the right to know."""
    try:
        return store.consumers.by_queue()
    except ResponseError:
        return None
