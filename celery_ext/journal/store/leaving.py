"""Moves messages from Redis to the journal that are due late by now."""

from collections.abc import Sequence
from typing import NamedTuple

from celery_ext.journal.store.bringing import Bringing
from celery_ext.journal.table import Addition, Journal
from kombu_delayq.store.types import Waiting
from kombu_delayq.store.upkeep.promotion import Promotion


class Departure(NamedTuple):
    """A message that is to leave Redis.

    Attributes:
        message: The message as it waits in Redis.
        addition: The same in the form that the journal takes.
        was: Number of its row; None without one.
    """

    message: Waiting
    addition: Addition
    was: int | None


class Leaving:
    """Lets messages wait in the journal that wait in Redis.

    In between each is in both, and the guard lets Redis decide over it: whoever asks for its row keeps it in Redis.

    Args:
        journal: The tables.
        promotion: Redis's side of the journal.
        bringing: Brings rows to Redis.
    """

    def __init__(self, journal: Journal, promotion: Promotion, bringing: Bringing) -> None:
        self._journal, self._promotion, self._bringing = journal, promotion, bringing

    def send_away(self, queue: str, departures: Sequence[Departure], now_ms: float) -> None:
        """Moves messages of one queue to the journal, as far as nobody else cancels, moves or brings them meanwhile.

        Args:
            queue: The queue.
            departures: The messages.
            now_ms: Redis's time, ms since the epoch.
        """
        if not departures:
            return
        seqs = self._journal.reserve(len(departures))
        self._promotion.note_leaving(queue, seqs, now_ms)  # before the rows wait, so that nobody sees them without
        for seq, (message, addition, was) in zip(seqs, departures, strict=True):
            if self._journal.let_wait(seq, addition, was):
                self._leave(queue, seq, message)

    def _leave(self, queue: str, seq: int, message: Waiting) -> None:
        word = self._promotion.send_away(queue, seq, message)
        if word in ("not_delayed", "changed"):  # somebody was faster who did not see the row
            self._journal.delete_rows([seq])
        elif word == "pushed":  # whoever asked for the row may leave it as it is
            self._bringing.bring(self._journal.rows([seq]))
