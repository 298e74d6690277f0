"""Which messages Redis was given and has lost."""

from collections.abc import Sequence
from math import inf

from redis.exceptions import RedisError

from celery_ext.journal.epochs import loss_of
from celery_ext.journal.journal import Journal
from celery_ext.journal.rows import Row
from celery_ext.journal.schema import MISSING
from kombu_delayq.store.promotion import Promotion


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
        found, unnoticed, current = [], dict[str, float](), self._journal.epoch()
        for row in rows:
            if row.state == MISSING:
                found.append(row)
                continue
            if row.state > current:  # Redis was given it after a loss that nobody has noted yet
                continue
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

    def next_epoch(self, queue: str) -> int:
        """Returns the epoch that begins once somebody notices that a queue has lost its data; 0 if it has not.

        Messages that Redis is given by then belong to it, and are not lost.
        """
        try:
            if self._promotion.is_marked(queue):
                return 0
            journal = self._journal
            if not journal.heartbeat() or (self._promotion.by_queue and queue not in journal.marked()):
                return 0  # nobody has written a marker yet
            epoch = journal.epoch()
            # Whoever notices the loss writes the marker first. So without one this epoch has not ended.
            return 0 if self._promotion.is_marked(queue) else epoch + 1
        except (RedisError, OSError):  # Redis refuses the question, or is away: what follows tells
            return 0

    def _unnoticed(self, queue: str) -> float:
        """Returns the watermark of a queue whose loss nobody has noticed yet; infinity without a loss."""
        heartbeat = self._journal.heartbeat()  # before the marker, which is never more than one behind it
        if not heartbeat:
            return inf
        marker = self._promotion.marker(queue)
        if marker is None and self._promotion.by_queue and queue not in self._journal.marked():
            marker = self._promotion.marker()  # a queue that is new may have no marker yet
        is_lost = marker is None or marker.heartbeat < heartbeat - 1
        return self._journal.watermarks().of(queue) if is_lost else inf
