"""Brings single messages from the journal to Redis, as a promoter does, before it is their turn."""

from collections.abc import Sequence

from celery_ext.journal.table import Journal, Row
from kombu_delayq.store.upkeep import promotion
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
        marker = self._promotion.marker() if rows else None
        if marker is None or marker.id != self._journal.id or marker.epoch != self._journal.epoch():
            return set()
        given = [
            promotion.Row(row.seq, row.queue, row.id, row.due_ms, row.priority, row.body, row.expire_ms) for row in rows
        ]
        words = self._promotion.promote(marker.id, marker.term, given).words
        there = {seq for seq, word in words.items() if word != "claimed"}
        self._journal.mark(there, marker.epoch)
        return there
