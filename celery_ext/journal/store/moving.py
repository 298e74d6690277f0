"""Moving messages from queue to queue, in Redis and in the journal."""

from collections.abc import Sequence

from celery_ext.journal.store.lookup import JournaledLookup
from celery_ext.journal.table import Journal
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import JOURNAL
from kombu_delayq.store.upkeep.moving import Move, Moving


class JournaledMoving(Moving):
    """Moves messages wherever they wait. Their rows follow them.

    Args:
        client: As of ``Moving``.
        registry: As of ``Moving``.
        journal: The tables.
        lookup: Changes rows.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry, journal: Journal, lookup: JournaledLookup) -> None:
        super().__init__(client, registry)
        self._journal, self._lookup = journal, lookup

    def move_to(self, queue: str, to: str, moves: Sequence[Move]) -> list[str]:
        """Moves messages of one queue to another; see ``Moving.move_to``.

        A message that a promoter brings to Redis meanwhile is ``not_delayed`` or ``changed``: it is found there then.
        """
        self._keys.check_queue(to)
        changes = [Change(message, message.due_ms, body) for message, body in moves]
        rows = self._lookup.rows_of(queue, [message for message, _ in moves])
        words, in_both = [""] * len(moves), self._lookup.in_both(changes, rows)
        for at, (change, row) in enumerate(zip(changes, rows, strict=True)):
            if change.message.backup == JOURNAL:
                word = self._lookup.replace(to, row, change)
                words[at] = "moved" if word == "rescheduled" else word
        left = [at for at, word in enumerate(words) if not word]
        for at, word in zip(left, super().move_to(queue, to, [moves[at] for at in left]), strict=True):
            words[at], row = word, rows[at]
            if word != "moved" or row is None:
                continue
            if at in in_both:
                self._lookup.take_over(to, changes[at], in_both[at])
            else:
                self._journal.follow([(row.seq, self._lookup.addition(to, changes[at], row))])
        return words
