"""What the leader does: it transfers each message at the moment it is due."""

from threading import Event
from time import monotonic

from kombu_delayq.store import TransportStore
from kombu_delayq.transfer.announcements import LISTEN_S, Announcements
from kombu_delayq.transfer.due_messages import DueMessages

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

    def deliver(self, store: TransportStore, registered: set[str], until: float) -> None:
        """Transfers messages as they become due until ``until``, an instant of ``monotonic``.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues; those that are heard of are added.
            until: When to return.

        Raises:
            WakeRefused: Redis refuses a channel.
        """
        while not self._stopping.is_set() and (left_s := until - monotonic()) > 0:
            self._messages.transfer(store)
            wait_s = max(min(self._messages.due_times.next_s(), left_s), 0)
            if not self._announcements.are_heard or wait_s <= FINE_S:
                self._stopping.wait(wait_s)
            else:
                self._hear(store, registered, min(wait_s - FINE_S, LISTEN_S))

    def _hear(self, store: TransportStore, registered: set[str], timeout_s: float) -> None:
        wake = self._announcements.wait(timeout_s)
        if wake is None:
            return
        if wake.form is None:
            self._messages.look(store, registered)
        else:
            self._messages.note(wake.form, wake.due_ms, registered)
