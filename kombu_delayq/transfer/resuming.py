"""Finishes moves between queues whose process has died, beside the other work of a leading transfer worker."""

from collections.abc import Iterable, Mapping
from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError

from kombu_delayq.connection.text import readable
from kombu_delayq.store import TransportStore

logger = get_logger(__name__)

#: The leader looks for messages on their way so often, in s.
EVERY_S = 60.0


class Resuming:
    """Looks for messages on their way when a worker begins to lead, and now and then; only in hash slots."""

    def __init__(self) -> None:
        self._next_at = -inf
        self._errors: dict[str, str] = {}  # by queue, those of the last look

    def stop(self) -> None:
        """Looks anew when the worker leads again."""
        self._next_at = -inf

    def go_on(self, store: TransportStore, registered: Iterable[str]) -> None:
        """Brings what is on its way, if it is time.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues. A move registers the queue that it empties.
        """
        if not store.keys.slots or monotonic() < self._next_at:
            return
        self._next_at = monotonic() + EVERY_S
        reported, self._errors = self._errors, {}
        try:
            unfinished = store.moving.unfinished(sorted(registered))
        except ResponseError as error:
            self._report("any queue", error, reported)
            return
        for queue in unfinished:
            try:
                count = store.moving.resume(queue)
            except ResponseError as error:
                self._report(f"queue {queue!r}", error, reported)
                continue
            if count:
                logger.info("%d messages were on their way from queue %r to another one, and have come", count, queue)

    def _report(self, queue: str, error: ResponseError, reported: Mapping[str, str]) -> None:
        """Logs an error, unless the last look had the same one."""
        self._errors[queue] = str(error)
        if reported.get(queue) != str(error):
            logger.error("messages stay on their way from %s to another one: %s", queue, readable(error))
