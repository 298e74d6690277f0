"""What a standby does: it looks soon after each head was due, and transfers what the leader has left."""

from math import inf
from threading import Event
from time import monotonic

from kombu_delayq.store import TransportStore
from kombu_delayq.store.types import QueueForm
from kombu_delayq.transfer.abandoned import AbandonedHeads
from kombu_delayq.transfer.announcements import LISTEN_S, Announcements
from kombu_delayq.transfer.due_messages import DueMessages

#: Shortest time from one look to the next, in s. One command covers all queues, so this bounds a standby's commands.
LOOKS_APART_S = 0.05
#: A standby that has heard an announcement lets more of them gather for this long, in s, and reads up to so many then:
#: to wake for each would cost more than to read it.
GATHER_S, GATHERED = 0.02, 1000


class Standby:
    """Hears of new heads as the leader does, and acts when the leader does not.

    Args:
        messages: The messages and their due times.
        announcements: The subscription.
        stopping: Set when the transfer worker stops.
    """

    def __init__(self, messages: DueMessages, announcements: Announcements, stopping: Event) -> None:
        self._messages = messages
        self._announcements = announcements
        self._stopping = stopping
        self._abandoned = AbandonedHeads()
        self._draining: list[QueueForm] = []
        self._looked_at = -inf
        self._has_missed = False  # whether announcements of any queue may have been missed

    def watch(self, store: TransportStore, registered: set[str], grace_s: float, until: float) -> None:
        """Looks after due times until ``until``, an instant of ``monotonic``.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues; those that are heard of are added.
            grace_s: How long after its due time to look whether a head has left, in s. A look also covers heads that
                have been due for half as long.
            until: When to return.

        Raises:
            WakeRefused: Redis refuses a channel.
        """
        while not self._stopping.is_set() and (left_s := until - monotonic()) > 0:
            look_s = self._next_look_s(grace_s)
            if look_s <= 0:
                self._read(registered, 0.0)
                self._look(store, registered, grace_s)
            elif self._draining:
                self._drain(store)
            elif self._read(registered, min(look_s, left_s, LISTEN_S)):
                self._stopping.wait(max(min(self._next_look_s(grace_s), left_s, GATHER_S), 0))

    def _next_look_s(self, grace_s: float) -> float:
        wanted_s = 0.0 if self._has_missed else self._messages.due_times.next_s() + grace_s
        return max(wanted_s, self._looked_at + LOOKS_APART_S - monotonic())

    def _read(self, registered: set[str], timeout_s: float) -> int:
        """Waits for an announcement and reads those that are there. Returns their number."""
        for count in range(GATHERED):
            wake = self._announcements.wait(0.0 if count else timeout_s)
            if wake is None:
                return count
            if wake.form is None:
                self._has_missed = True
            else:
                self._messages.note(wake.form, wake.due_ms, registered)
        return GATHERED

    def _look(self, store: TransportStore, registered: set[str], grace_s: float) -> None:
        """Reads in one command what has become of the overdue heads, and transfers what nobody else does."""
        self._looked_at = monotonic()
        if self._has_missed:
            self._has_missed = False
            self._messages.look(store, registered)
            return
        late_ms = grace_s * 1000 / 2
        known = self._messages.due_times.overdue(late_ms)
        seen = store.leases.watch_heads(list(known))
        for form in seen.unseen:
            self._messages.due_times.put_off(form)
            del known[form]
        self._messages.due_times.note_look(known, seen)
        self._draining = self._abandoned.find(known, seen, late_ms, store.options.poll_interval * 1000)
        self._drain(store)

    def _drain(self, store: TransportStore) -> None:
        self._draining = [form for form in self._draining if self._transfers(store, form)]

    def _transfers(self, store: TransportStore, form: QueueForm) -> bool:
        """Transfers one batch. Returns whether more messages are due."""
        done = self._messages.transfer_batch(store, form)
        return done is not None and done.more
