"""Whole queues, in Redis and in the journal: their names, their figures, and their end."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from redis.exceptions import ResponseError

from celery_ext.journal.table import Journal
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.queues import Queues, QueueStats
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.upkeep.promotion import Promotion
from kombu_delayq.store.upkeep.promotion_types import RowNumber
from kombu_delayq.store.viewing.figures import Figures


def tally(client: StoreClient, keys: Keys, queue: str, operation: str, number: int) -> None:
    """Counts what was done to messages of a queue that waited in the journal. A Redis that refuses is no error."""
    if number:
        with suppress(ResponseError):
            client.ask("HINCRBY", keys.counts(queue), operation, number)


class JournaledQueues(Queues):
    """Lists, counts and empties queues wherever their messages wait.

    Transfer workers do without the journal: ``registered``, ``keep_alive``, ``forget`` and ``convert`` never ask it.

    Args:
        client: As of ``Queues``.
        registry: As of ``Queues``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry, journal: Journal) -> None:
        super().__init__(client, registry)
        self._journal = journal
        self._promotion = Promotion(client, registry)

    def names(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages, in Redis or in the journal."""
        in_journal = self._journal.queues()
        return sorted({*in_journal, *super().names()})

    def exists(self, queue: str) -> bool:
        """Whether anybody has published to a queue or consumes it; see ``Queues.exists``."""
        return super().exists(queue) or self._journal.count(queue) > 0

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue."""
        in_journal = self._journal.count(queue)
        return in_journal + super().size(queue)

    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages."""
        in_journal = self._journal.counts(queues=[queue])
        return with_rows(self._journal, [super().stats(queue)], in_journal)[0]

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue, from the journal first. Returns how many."""
        count = 0
        while gone := self._journal.purge(queue):
            # A row that is not due yet may be at hand as well: of a promoter with a larger lead, or of a ``run_now``.
            words = self._promotion.claim_rows(RowNumber(queue, seq) for seq in gone.waiting).values()
            count += sum(word == "claimed" for word in words)
        tally(self._client, self._keys, queue, "purge", count)
        return count + super().purge(queue)


class JournaledFigures(Figures):
    """Counts the messages of many queues wherever they wait.

    Args:
        client: As of ``Figures``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, journal: Journal) -> None:
        super().__init__(client)
        self._journal = journal

    def overview(self, queues: Sequence[str]) -> list[QueueStats]:
        """Counts the messages of queues; see ``Figures.overview``."""
        in_journal = self._journal.counts(queues=queues)
        return with_rows(self._journal, super().overview(queues), in_journal)

    def due_counts(self, queues: Sequence[str], bounds_ms: Sequence[float]) -> dict[str, list[int]]:
        """Counts how many messages of queues come due when; see ``Figures.due_counts``."""
        rows = self._journal.due_counts(queues, bounds_ms)
        found = super().due_counts(queues, bounds_ms)
        return {queue: [sum(both) for both in zip(counts, rows[queue], strict=True)] for queue, counts in found.items()}


def with_rows(journal: Journal, found: Sequence[QueueStats], in_journal: dict[str, int]) -> list[QueueStats]:
    """Returns what Redis says of queues together with what the journal has of them.

    Args:
        journal: The tables.
        found: What Redis says.
        in_journal: How many rows of each queue wait in the journal, read before that.
    """
    return [
        _with_rows(journal, one, in_journal[one.queue]) if in_journal.get(one.queue) and not one.error else one
        for one in found
    ]


def _with_rows(journal: Journal, stats: QueueStats, waiting: int) -> QueueStats:
    heads = [due_ms for due_ms in (stats.next_due_ms, journal.next_due(stats.queue)) if due_ms is not None]
    next_due_ms = min(heads, default=None)
    is_late = next_due_ms is not None and next_due_ms <= stats.now_ms
    overdue = journal.counts(to_ms=stats.now_ms, queues=[stats.queue]).get(stats.queue, 0) if is_late else 0
    delayed, overdue = stats.delayed + waiting, stats.overdue + overdue
    return replace(stats, delayed=delayed, overdue=overdue, next_due_ms=next_due_ms, in_journal=waiting)
