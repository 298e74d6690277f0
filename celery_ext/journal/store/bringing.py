"""Brings single messages from the journal to Redis, as a promoter does, before it is their turn."""

from collections.abc import Sequence

from celery_ext.journal.table import Journal, Row
from kombu_delayq.store.upkeep.promotion import Promotion


class Bringing:
    """Brings rows under the term that is in office. The guard lets each row come once, whoever brings it.

    Args:
        journal: The tables.
        promotion: Redis's side of the journal.
    """

    def __init__(self, journal: Journal, promotion: Promotion) -> None:
        self._journal = journal
        self._promotion = promotion

    def bring(self, rows: Sequence[Row]) -> set[int]:
        """Returns the numbers of the rows that Redis was given now or before. None, if Redis belongs to no journal yet.

        The rows stay in the guard: a promoter may have read them before they were marked.
        """
        there: set[int] = set()
        queues = dict.fromkeys(row.queue for row in rows) if self._promotion.by_queue else {None: None} if rows else {}
        for queue in queues:
            there |= self._bring([row for row in rows if queue in (None, row.queue)], queue)
        return there

    def _bring(self, rows: Sequence[Row], queue: str | None) -> set[int]:
        marker, epoch = self._promotion.marker(queue), self._journal.epoch()
        if marker is None or marker.id != self._journal.id:
            return set()
        if (queue is None and marker.epoch != epoch) or marker.epoch > epoch:
            return set()
        if queue is not None:  # a claim that came before the marker of the queue was not kept
            waiting = {row.seq for row in self._journal.rows([row.seq for row in rows])}
            rows = [row for row in rows if row.seq in waiting]
        words = self._promotion.promote(marker.id, marker.term, [row.for_redis for row in rows]).words
        there = {seq for seq, word in words.items() if word != "claimed"}
        self._journal.mark(there, epoch)
        return there
