"""The figures of queues, as the pages show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from celery_ext.serve.counting import QueueState, count_queues
from celery_ext.serve.page.chart import bounds, small_bars
from celery_ext.serve.page.figures import QueueRow, late, moment, number
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.counts import WAIT_BOUNDS_S
from kombu_delayq.store.nodes import Cluster


@dataclass(frozen=True)
class Gathered:
    """The figures of some queues.

    Attributes:
        now_ms: Redis's clock, ms since the epoch.
        rows: What the page shows of each queue.
        due: How many messages of each queue come due when: counts of ``chart.bounds``.
        cluster: The nodes; None on a server without hash slots.
    """

    now_ms: float
    rows: list[QueueRow]
    due: dict[str, list[int]]
    cluster: Cluster | None = None


def gather(store: OperatorStore, queues: Sequence[str], span: str) -> Gathered:
    """Reads the figures of queues.

    Args:
        store: The broker's store.
        queues: Their names.
        span: A key of ``chart.SPANS``.
    """
    cluster = store.nodes.overview()
    now_ms = store.now_ms()
    due = store.figures.due_counts(queues, bounds(now_ms, span))
    rows = [_row(state, due.get(state.stats.queue, [])) for state in count_queues(store, queues, cluster)]
    return Gathered(now_ms, rows, due, cluster)


def _row(state: QueueState, due: Sequence[int]) -> QueueRow:
    stats, counts = state.stats, state.counts
    held_back = counts.holding(stats)
    p50, p99 = (late(counts.lateness.quantile(share)) for share in (0.5, 0.99))
    waited_p50, waited_p99 = (late(counts.waits.quantile(share), WAIT_BOUNDS_S[-1]) for share in (0.5, 0.99))
    return QueueRow(
        stats.queue,
        stats.delayed,
        stats.ready,
        stats.overdue,
        stats.overdue_ms / 1000 if stats.overdue else 0.0,
        state.unacked,
        moment(stats.next_due_ms, stats.now_ms),
        p50,
        p99,
        state.consumers,
        waited_p50,
        waited_p99,
        held_back=f"held back by its rate, {number(stats.overdue)} wait, at {held_back.per_s:g}/s" if held_back else "",
        held_until=moment(held_back.clear_ms(stats.now_ms, stats.overdue), stats.now_ms) if held_back else None,
        too_late=", ".join(f"{number(count)} {what}" for what, count in counts.too_late.items() if count),
        oldest_s=stats.oldest_ready_s,
        paused=moment(state.paused_ms, stats.now_ms),
        error=stats.error,
        bars=small_bars(due),
        bars_text=f"{sum(due[1:-1]):,} come due in the time of the chart",
        in_journal=stats.in_journal,
        slot=state.slot,
        node=state.node,
    )
