"""Reads the figures that the page shows, in a few round trips, however many queues there are."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from celery_ext.serve.page.chart import bounds, small_bars
from celery_ext.serve.page.figures import QueueRow, late, moment, number
from celery_ext.serve.service import ServeBroker
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.counts import QueueCounts
from kombu_delayq.store.nodes import Cluster
from kombu_delayq.store.queues import QueueStats

#: How often the servers are asked whether they keep anything on disk, in s.
DISK_S = 30.0


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
    stats = {found.queue: found for found in store.figures.overview(queues)}
    counts = store.figures.counts(queues)
    due = store.figures.due_counts(queues, bounds(now_ms, span))
    held, consumers = _held(store), _consumers(store)

    def row_of(queue: str) -> QueueRow:
        slot, node = store.nodes.place_of(queue, cluster)
        row = _row(
            stats[queue],
            counts[queue],
            due.get(queue, []),
            None if held is None else held.get(queue, 0),
            None if consumers is None else consumers[queue],
        )
        return replace(row, slot=slot, node=node)

    return Gathered(now_ms, list(map(row_of, queues)), due, cluster)


class Disk:
    """Which servers keep nothing on disk. A setting seldom changes, so the servers are not asked each time.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._asked_s = -inf
        self._missing: list[str] = []

    def missing(self) -> list[str]:
        """Returns the addresses of servers that have neither an append-only file nor snapshots, as far as they tell."""
        if monotonic() - self._asked_s > DISK_S:
            self._asked_s = monotonic()
            with suppress(*self._broker.store.nodes.errors):
                self._missing = self._look()
        return self._missing

    def _look(self) -> list[str]:
        servers = self._broker.store.servers
        without_log = [name for name, info in servers.info().items() if info.get("aof_enabled") == 0]
        saves = servers.setting("save") if without_log else {}
        return [name for name in without_log if saves.get(name) == ""]


def letters_of(store: OperatorStore, queues: Iterable[str]) -> dict[str, int]:
    """Returns how many dead letters some queues hold; none of those that cannot be read."""
    found: dict[str, int] = {}
    for queue in queues:
        with suppress(*store.nodes.errors):
            found[queue] = sum(store.letters.lists(queue).values())
    return found


def _row(
    stats: QueueStats,
    counts: QueueCounts,
    due: Sequence[int],
    held: int | None,
    consumers: int | None,
) -> QueueRow:
    held_back = counts.holding(stats)
    p50, p99 = (late(counts.lateness.quantile(share)) for share in (0.5, 0.99))
    return QueueRow(
        stats.queue,
        stats.delayed,
        stats.ready,
        stats.overdue,
        stats.overdue_ms / 1000 if stats.overdue else 0.0,
        held,
        moment(stats.next_due_ms, stats.now_ms),
        p50,
        p99,
        consumers,
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
    except store.nodes.errors:
        return None


def _consumers(store: OperatorStore) -> Counter[str] | None:
    """Returns the number of consumers that live by queue; None for a user without the right to know."""
    try:
        return store.consumers.by_queue()
    except store.nodes.errors:
        return None
