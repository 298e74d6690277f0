"""Forgets queues that have been empty and unused for long, beside the other work of a leading transfer worker."""

from collections.abc import Iterable
from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError

from kombu_delayq.connection.text import readable
from kombu_delayq.store import TransportStore
from kombu_delayq.store.use import FORGET_SHARE
from kombu_delayq.transfer.announcements import Announcements

logger = get_logger(__name__)

#: Number of names that one call goes through. There is one call every poll interval.
PAGE = 100


class Forgetting:
    """Goes through the names of all registered queues now and then, a page at a time."""

    def __init__(self) -> None:
        self._left: list[str] = []
        self._consumed: list[str] = []
        self._next_round_at = -inf
        self._has_failed = False

    def go_on(self, store: TransportStore, registered: Iterable[str], announcements: Announcements) -> None:
        """Goes through the next page, if it is time.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues.
            announcements: The caller's own subscription, which does not count as a use of a queue.
        """
        after_s, now = store.options.forget_after, monotonic()
        if after_s is None or not (self._left or self._consumed or now >= self._next_round_at):
            return
        if not (self._left or self._consumed):
            self._left = sorted({*registered, *store.queues.half_forgotten()})
            self._consumed = store.consumers.shares() if store.keys.slots else []
            self._next_round_at = now + after_s * FORGET_SHARE
        page, self._left = self._left[:PAGE], self._left[PAGE:]
        consumed, self._consumed = self._consumed[:PAGE], self._consumed[PAGE:]
        try:
            for queue in store.queues.forget_consumed(consumed) if consumed else ():
                logger.debug("queue %r has no consumers any more", queue)
            heard = [queue for queue in page if announcements.hears(queue)]
            for queue in store.queues.forget(page, after_s, heard) if page else ():
                logger.debug("queue %r is forgotten, which was not used for %g s", queue, after_s)
        except ResponseError as error:  # an ACL may forbid it; names of unused queues cost little
            self._left, self._consumed = [], []
            if not self._has_failed:
                self._has_failed = True
                logger.info("queues that are not used any more are not forgotten: %s", readable(error))
