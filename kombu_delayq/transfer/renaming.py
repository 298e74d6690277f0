"""Moves messages from names of keys that a plain server has, beside the other work of a leading transfer worker."""

from collections.abc import Iterable
from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError

from kombu_delayq.connection.text import readable
from kombu_delayq.store import TransportStore

logger = get_logger(__name__)

#: The leader looks for old names so often, in s, and moves messages for about so long at a time.
EVERY_S, SLICE_S = 60.0, 0.1


class Renaming:
    """Looks for old names when a worker begins to lead, and now and then; only where Redis has hash slots."""

    def __init__(self) -> None:
        self._next_at = -inf
        self._moved = 0
        self._error = ""

    def stop(self) -> None:
        """Looks anew when the worker leads again."""
        self._next_at = -inf

    def go_on(self, store: TransportStore, registered: Iterable[str]) -> None:
        """Moves messages for about ``SLICE_S``, if it is time.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues.
        """
        if not store.keys.slots or monotonic() < self._next_at:
            return
        self._next_at = monotonic() + EVERY_S
        try:
            if not self._move(store, registered):
                self._next_at = -inf
        except ResponseError as error:
            if str(error) != self._error:
                self._error = str(error)
                logger.error("messages under names of keys of a plain server stay there: %s", readable(error))

    def _move(self, store: TransportStore, registered: Iterable[str]) -> bool:
        """Moves messages. Returns whether none are left."""
        until, renamed = monotonic() + SLICE_S, store.renamed
        with renamed.moving(0.0) as alone:
            if not alone:
                return True
            left = renamed.queues({*registered, *store.consumers.by_queue()})
            while left and monotonic() < until:
                moved = [renamed.move(queue) for queue in left]
                self._moved += sum(moved)
                left = [queue for queue, count in zip(left, moved, strict=True) if count]
            while not left and (held := renamed.move_held()):
                self._moved += held
                if monotonic() > until:
                    return False
            renamed.move_notes()
        if not left and self._moved:
            logger.info("%d messages were under names of keys of a plain server, and have moved", self._moved)
            self._moved = 0
        return not left
