"""Reads from Redis what the metrics are made of."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, TypeVar

from celery_ext.connection import look_at_journal
from kombu_delayq.connection.text import readable
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.queues import QueueStats
from kombu_delayq.store.viewing.counts import QueueCounts
from kombu_delayq.store.viewing.nodes import Cluster

if TYPE_CHECKING:
    from celery_ext.journal.state import JournalState

logger = logging.getLogger(__name__)

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
        dead_letters: By queue of dead letters, how many it holds.
        journal: How the journal is, with the rows of these queues; None without one.
        cluster: The nodes; None on a server without hash slots.
        slots: By queue, its hash slot, also while its node is away; empty on a server without them.
    """

    leads: bool
    queues: Sequence[QueueStats]
    within: Mapping[str, Sequence[int]] = field(default_factory=dict)
    counts: Mapping[str, QueueCounts] = field(default_factory=dict)
    unacked: Mapping[str, int] = field(default_factory=dict)
    consumers: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    journal: "JournalState | None" = None
    cluster: Cluster | None = None
    slots: Mapping[str, int] = field(default_factory=dict)


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
        store, journal = look_at_journal(store, counted=False)
        cluster = store.nodes.overview()
        if journal is not None:
            waiting, offered = (
                {queue: count for queue, count in counts.items() if may_see(queue)}
                for counts in (journal.waiting, journal.offered)
            )
            journal = journal._replace(waiting=waiting, offered=offered)
        figures = store.figures
        letters = {*self._letters, *self._optional(store, "dead letters", figures.dead_letter_queues, list[str]())}
        known = {*store.queues.names(), *(set(self._declared()) - letters)}
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
        return Snapshot(
            store.leases.leader() is not None,
            stats_of,
            self._optional(store, "due times", lambda: _within(store, names, now_ms), {}),
            self._optional(store, "counters", lambda: figures.counts(names), {}),
            {} if unacked is None else {name: unacked.get(name, 0) for name in names},
            {} if consumers is None else {name: consumers[name] for name in names},
            {name: found[name].ready for name in sorted(letters) if not found[name].error},
            journal,
            cluster,
            slots,
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
