"""A consumer as Redis knows it: a name with a lease, under which it holds messages."""

import os
import socket
from collections.abc import Callable, Iterable
from threading import Lock
from time import monotonic
from uuid import uuid4

from kombu.log import get_logger

from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.taking import Request

logger = get_logger(__name__)

#: For how long after the loss of a connection Redis may still run what was sent over it, in s.
UNSURE_S = 30.0


class Consumer:
    """The consumer of one connection to the broker. Any thread may use it.

    Args:
        queues: Returns the names of the queues that it consumes.

    Attributes:
        held: Delivery tags of the messages in hand, with the names of their queues.
    """

    def __init__(self, queues: Callable[[], Iterable[str]]) -> None:
        self.held: dict[str, str] = {}
        self._unanswered: list[tuple[Request, float]] = []
        self._next = 1
        self._queues = queues
        self._lock = Lock()
        self._begin()

    @property
    def name(self) -> str:
        """``host:pid:random``; another one after the lease has ended, and after a fork."""
        return self._name

    @property
    def is_own(self) -> bool:
        """Whether this process gave the consumer its name."""
        return self._pid == os.getpid()

    def numbers(self, count: int) -> int:
        """Returns the first of ``count`` numbers for delivery tags, which nobody else gets."""
        with self._lock:
            first, self._next = self._next, self._next + count
        return first

    def renew(self, store: TransportStore) -> None:
        """Renews the lease, or takes one under a new name if it has ended."""
        with self._lock:
            if not self.is_own:
                self.held.clear()
                self._unanswered.clear()
                self._begin()
            if self._beat(store):
                return
            logger.warning(
                "consumer %s was silent for longer than consumer_ttl, %g s, and counts as dead: the %d messages in its "
                "hands go back to their queues, and run twice. It goes on under another name",
                *(self._name, store.options.consumer_ttl, len(self.held)),
            )
            self._begin()
            self._beat(store)

    def leave(self, store: TransportStore) -> None:
        """Gives the lease back. If messages are still held, it ends by itself, and they go back to their queues."""
        with self._lock:
            if self._has_lease and self.is_own and not self.held and not self._unanswered:
                store.consumers.leave(self._name)

    def lose(self, request: Request) -> None:
        """Takes note that the reply to a request was lost. Redis may have run it, or may run it soon."""
        self._unanswered.append((request, monotonic()))

    def recover(self, store: TransportStore) -> None:
        """Puts back what Redis took from queues by requests whose replies were lost; a round trip for each."""
        for request, lost_at in list(self._unanswered):
            is_over = monotonic() - lost_at > UNSURE_S
            store.taking.recover(request)
            if is_over:
                self._unanswered.remove((request, lost_at))

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._name = f"{socket.gethostname()}:{self._pid}:{uuid4().hex[:8]}"
        self._next = 1
        self._has_lease = False

    def _beat(self, store: TransportStore) -> bool:
        is_new, self._has_lease = not self._has_lease, True
        return store.consumers.beat(self._name, sorted(self._queues()), list(self.held), is_new=is_new)
