"""What the leader does: it transfers each message at the moment it is due, and drops the names of empty queues."""

from collections.abc import Callable, Collection, Iterable
from math import inf
from threading import Event
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError

from kombu_delayq.message import pages
from kombu_delayq.store import LISTEN_S, Announcements, DelayStore
from kombu_delayq.text import readable
from kombu_delayq.transfer.due_messages import DueMessages

logger = get_logger(__name__)

#: The leader looks for the names of empty queues so often, in s, and at so many at once.
TIDY_S, TIDY_PAGE = 60.0, 500
#: The leader sleeps the last part of a wait, in s, because a wait at a socket is rounded up to whole ms.
FINE_S = 0.002


class Leader:
    """Sleeps until the next message is due or a new head is announced.

    Args:
        messages: The messages and their due times.
        announcements: The subscription; without it, new heads are noticed by the next poll.
        stopping: Set when the transfer worker stops.
    """

    def __init__(self, messages: DueMessages, announcements: Announcements, stopping: Event) -> None:
        self._messages = messages
        self._announcements = announcements
        self._stopping = stopping

    def deliver(
        self, store: DelayStore, registered: set[str], until: float, meanwhile: Callable[[DelayStore], float]
    ) -> None:
        """Transfers messages as they become due until ``until``, an instant of ``monotonic``.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues; those that are heard of are added.
            until: When to return.
            meanwhile: Does what is to be done more often. Returns the time until it is to be called again, in s.

        Raises:
            WakeRefused: Redis refuses a channel.
        """
        while not self._stopping.is_set() and (left_s := until - monotonic()) > 0:
            self._messages.transfer(store)
            again_s = meanwhile(store)
            wait_s = max(min(self._messages.due_times.next_s(), left_s, again_s), 0)
            if not self._announcements.are_heard or wait_s <= FINE_S:
                self._stopping.wait(wait_s)
            else:
                self._hear(store, registered, min(wait_s - FINE_S, LISTEN_S))

    def _hear(self, store: DelayStore, registered: set[str], timeout_s: float) -> None:
        wake = self._announcements.wait(timeout_s)
        if wake is None:
            return
        if wake.delayed is None:
            self._messages.look(store, registered)
        else:
            self._messages.note(wake.delayed, wake.due_ms, registered)


class Tidying:
    """Drops, now and then, the names of queues that are empty and unused, so that no look at Redis asks for them."""

    def __init__(self) -> None:
        self._next_at = -inf
        self._error = ""

    def go_on(self, store: DelayStore, registered: Iterable[str], consumed: Collection[str] = ()) -> None:
        """Goes through the names, if it is time.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues.
            consumed: Names of queues that are known to be consumed; nothing is asked if that are all, on a server
                without hash slots.
        """
        if monotonic() < self._next_at or (store.keys.groups is None and set(registered).issubset(consumed)):
            return
        self._next_at = monotonic() + TIDY_S
        try:
            # What a consumer holds comes back to its queue if it dies, and the next message of a queue that is consumed
            # may come from a service that registers nothing.
            kept = {queue for lease in store.consumers.all() for queue in lease.queues}
            for page in pages(sorted(set(registered).difference(kept)), TIDY_PAGE):
                store.queues.forget_empty(page)
            for page in pages(store.consumers.slot_groups(), TIDY_PAGE):
                store.consumers.drop_idle(page)
        except ResponseError as error:  # an ACL may forbid it; names of empty queues cost little
            if str(error) != self._error:
                self._error = str(error)
                logger.info("the names of empty queues stay: %s", readable(error))
