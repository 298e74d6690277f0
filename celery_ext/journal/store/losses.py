"""Tells which messages that Redis was given it has lost."""

from collections.abc import Sequence
from math import inf

from celery_ext.journal.table import Journal, Row
from celery_ext.journal.table.epochs import loss_of
from kombu_delayq.store.upkeep.promotion import Promotion


class Losses:
    """Judges rows by the losses of Redis's data, noticed or not.

    Args:
        journal: The tables.
        promotion: Redis's side of the journal.
    """

    def __init__(self, journal: Journal, promotion: Promotion) -> None:
        self._journal = journal
        self._promotion = promotion

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """Returns those of the rows whose messages Redis has lost: they were not due when it lost its data."""
        if not rows:
            return []
        ended = {one.epoch: one for one in self._journal.epochs()}
        found, unnoticed = [], dict[str, float]()
        for row in rows:
            loss = loss_of(ended, row.state, row.queue)
            if loss is not None:
                limit_ms = inf if loss.restored_ms is not None else loss.watermarks.of(row.queue)
            else:
                if row.queue not in unnoticed:
                    unnoticed[row.queue] = self._unnoticed(row.queue)
                limit_ms = unnoticed[row.queue]
            if row.due_ms >= limit_ms:
                found.append(row)
        return found

    def _unnoticed(self, queue: str) -> float:
        """Returns the watermark of a queue whose loss nobody has noticed yet; infinity without a loss."""
        beat = self._journal.beat()  # before the marker, which is never more than one behind it
        if not beat:
            return inf
        marker = self._promotion.marker(queue)
        if marker is None and self._promotion.by_queue and queue not in self._journal.marked():
            marker = self._promotion.marker()  # a queue that is new may have no marker yet
        is_lost = marker is None or marker.beat < beat - 1
        return self._journal.watermarks().of(queue) if is_lost else inf
