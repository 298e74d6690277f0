"""Brings single messages from the journal to Redis, as a promoter does, before it is their turn."""

from collections.abc import Sequence
from uuid import uuid4

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

        The rows stay in the guard: a promoter may have read them before they were marked. A row that was marked or
        changed since the caller read it is left out.
        """
        there: set[int] = set()
        queues = dict.fromkeys(row.queue for row in rows) if self._promotion.by_queue else {None: None} if rows else {}
        for queue in queues:
            there |= self._bring([row for row in rows if queue in (None, row.queue)], queue)
        return there

    def _bring(self, rows: Sequence[Row], queue: str | None) -> set[int]:
        there: set[int] = set()
        while rows:
            marker, epoch = self._promotion.marker(queue), self._journal.epoch()
            if marker is None or marker.id != self._journal.id:
                break
            if (queue is None and marker.epoch != epoch) or marker.epoch > epoch:
                break
            # Since the caller read a row, a promoter may have pushed it, marked it and taken it out of the guard, and
            # its message may have left Redis. And a claim that came before the marker of the queue was not kept. So
            # each row is held first, and then read again.
            hold = uuid4().hex
            self._promotion.hold_rows(rows, hold)
            rows = self._journal.rows([row.seq for row in rows])
            word, words = self._promotion.promote(marker.id, marker.term, [row.for_redis for row in rows], hold)
            brought = {seq for seq, word in words.items() if word in ("promoted", "pushed")}
            self._journal.mark(brought, epoch)
            there |= brought
            # Somebody else was faster: another caller, or a promoter, or one that has just taken office.
            again = "free" if word == "superseded" else ""
            rows = [row for row in rows if words.get(row.seq, again) == "free"]
        return there
