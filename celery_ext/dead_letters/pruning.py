"""Drops dead letters that are too old, or too many: ``dead_letter_ttl`` and ``dead_letter_max``."""

from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError

from celery_ext.dead_letters.store import MOST_PRUNED, LetterStore
from kombu_delayq.store import DelayStore
from kombu_delayq.text import readable

logger = get_logger(__name__)

#: The leader looks at the dead letters so often, in s; and so often while there are many to drop.
PRUNE_S, PRUNE_ON_S = 60.0, 1.0


class Pruning:
    """Looks at all queues of dead letters now and then. A queue that cannot be pruned holds up no other.

    It is the hook ``chore``, of which each transfer worker that leads makes one.
    """

    def __init__(self) -> None:
        self._next_at = -inf
        self._errors: dict[str, str] = {}

    def go_on(self, store: DelayStore) -> None:
        """Drops what is to be dropped, if it is time; at most about ``MOST_PRUNED`` letters of each queue."""
        ttl, most = store.options.dead_letter_ttl, store.options.dead_letter_max
        if monotonic() < self._next_at or (ttl is None and most is None):
            return
        self._next_at = monotonic() + PRUNE_S
        queues = self._queues(store)
        before_ms = None if ttl is None or not queues else store.now_ms() - 1000 * ttl
        for queue in queues:
            try:
                dropped = store.part(LetterStore).prune(queue, before_ms, most)
            except ResponseError as error:  # an ACL may forbid it, or a key has another type
                self._note(queue, str(error))
                continue
            self._errors.pop(queue, None)
            if dropped:
                logger.info(
                    "queue %r: %d dead letters are dropped, older than dead_letter_ttl or beyond dead_letter_max",
                    readable(queue),
                    dropped,
                )
            if dropped >= MOST_PRUNED:
                self._next_at = monotonic() + PRUNE_ON_S

    def _queues(self, store: DelayStore) -> list[str]:
        try:
            return store.queues.of_letters()
        except ResponseError as error:
            self._note("", str(error))
            return []

    def _note(self, queue: str, error: str) -> None:
        if self._errors.get(queue) != error:
            self._errors[queue] = error
            logger.info(
                "dead letters%s stay, however old: %s", f" of queue {queue!r}" if queue else "", readable(error)
            )
