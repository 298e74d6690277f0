"""What a standby does: it looks soon after each head was due, and transfers what the leader has left."""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from threading import Event
from time import monotonic

from kombu_delayq.store import LISTEN_S, Announcements, DelayedQueue, DelayStore, WatchedHeads
from kombu_delayq.transfer.due_messages import DueMessages
from kombu_delayq.transfer.due_times import KnownHead

#: Shortest time from one look to the next, in s. One command covers all queues, so this bounds a standby's commands.
LOOKS_APART_S = 0.05
#: A standby that has heard an announcement lets more of them gather for this long, in s, and reads up to so many then:
#: to wake for each would cost more than to read it.
GATHER_S, GATHERED = 0.02, 1000
#: How long nothing may have left before a leader whose connections are open counts as dead, in ms.
SILENCE_MS = 200.0
#: The lateness of a leader that a look finds counts at the next look by this factor, and so on.
LATENESS_KEPT = 0.95


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
        self._draining: list[DelayedQueue] = []
        self._looked_at = -inf
        self._has_missed = False  # whether announcements of any queue may have been missed

    def watch(
        self,
        store: DelayStore,
        registered: set[str],
        grace_s: float,
        until: float,
        meanwhile: Callable[[DelayStore], float],
    ) -> None:
        """Looks after due times until ``until``, an instant of ``monotonic``.

        Args:
            store: The store of the broker.
            registered: Names of the registered queues; those that are heard of are added.
            grace_s: How long after its due time to look whether a head has left, in s. A look also covers heads that
                have been due for half as long.
            until: When to return.
            meanwhile: Does what is to be done more often. Returns the time until it is to be called again, in s.

        Raises:
            WakeRefused: Redis refuses a channel.
        """
        while not self._stopping.is_set() and (left_s := until - monotonic()) > 0:
            again_s = meanwhile(store)
            look_s = self._next_look_s(grace_s)
            if look_s <= 0:
                self._read(registered, 0.0)
                self._look(store, registered, grace_s)
            elif self._draining:
                self._drain(store)
            elif self._read(registered, min(look_s, left_s, again_s, LISTEN_S)):
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
            if wake.delayed is None:
                self._has_missed = True
            else:
                self._messages.note(wake.delayed, wake.due_ms, registered)
        return GATHERED

    def _look(self, store: DelayStore, registered: set[str], grace_s: float) -> None:
        """Reads in one command what has become of the overdue heads, and transfers what nobody else does."""
        self._looked_at = monotonic()
        if self._has_missed:
            self._has_missed = False
            self._messages.look(store, registered)
            return
        late_ms = grace_s * 1000 / 2
        known = self._messages.due_times.overdue(late_ms)
        seen = store.leases.watch_heads(list(known))
        for delayed in seen.unseen:
            self._messages.due_times.put_off(delayed)
            del known[delayed]
        self._messages.due_times.note_look(known, seen)
        self._draining = self._abandoned.find(known, seen, late_ms, store.options.poll_interval * 1000)
        self._drain(store)

    def _drain(self, store: DelayStore) -> None:
        self._draining = [delayed for delayed in self._draining if self._transfers(store, delayed)]

    def _transfers(self, store: DelayStore, delayed: DelayedQueue) -> bool:
        """Transfers one batch. Returns whether more messages are due."""
        done = self._messages.transfer_batch(store, delayed)
        return done is not None and done.more


class AbandonedHeads:
    """Tells heads that nobody transfers from those that a leader with much to do has not reached yet.

    A head that has left since the look before is a sign of life: somebody transferred when it was due, or later. A head
    that became due before the last sign of life is not abandoned: the leader will reach it, and a standby that did the
    same work would only add to the load. One that became due after it is abandoned if the leader is gone, or if there
    is no sign of life for ``SILENCE_MS``. So is a head that the leader does not reach although it reaches others much
    sooner: it probably cannot transfer it.
    """

    def __init__(self) -> None:
        self._first_seen_ms: dict[DelayedQueue, float] = {}  # overdue heads: since when nobody else has moved them
        self._lateness_ms = 0.0  # how late the leader has been lately
        #: Since the last sign of life: due time of the first head that was left, and when it was found.
        self._left_due_ms = self._silent_since_ms = inf

    def find(
        self, known: Mapping[DelayedQueue, KnownHead], seen: WatchedHeads, late_ms: float, unreached_ms: float
    ) -> list[DelayedQueue]:
        """Compares the heads before a look with those that Redis has returned.

        Args:
            known: The overdue heads as they were known before the look.
            seen: What Redis has returned for these.
            late_ms: For how long a head must have been due to be found.
            unreached_ms: By how much longer than usual a leader that lives may need to reach a head.

        Returns:
            The queues and layouts of the abandoned heads, the longest overdue first.
        """
        moved = {delayed: head for delayed, head in known.items() if head.is_before(seen.heads.get(delayed))}
        dues_ms = {delayed: head.due_ms for delayed, head in seen.heads.items() if head.due_ms <= seen.now_ms - late_ms}
        life_ms = max((head.since_ms for head in moved.values()), default=-inf)
        left = [delayed for delayed, due_ms in dues_ms.items() if due_ms > life_ms]
        if life_ms >= self._left_due_ms:
            self._left_due_ms = self._silent_since_ms = inf
        if left and self._silent_since_ms == inf:
            self._silent_since_ms = seen.now_ms
            self._left_due_ms = min(dues_ms[delayed] for delayed in left)
        is_dead = seen.is_gone or seen.now_ms - self._silent_since_ms >= SILENCE_MS
        unreached = self._unreached(moved, seen.now_ms, dues_ms, unreached_ms)
        return sorted({*unreached, *(left if is_dead else ())}, key=dues_ms.__getitem__)

    def _unreached(
        self,
        moved: Mapping[DelayedQueue, KnownHead],
        now_ms: float,
        overdue: Iterable[DelayedQueue],
        unreached_ms: float,
    ) -> list[DelayedQueue]:
        seen_before = (head for head in moved.values() if head.entry is not None)  # an announcement may be nonsense
        late_ms = max((now_ms - head.due_ms for head in seen_before), default=0.0)
        self._lateness_ms = max(late_ms, LATENESS_KEPT * self._lateness_ms)
        first_seen_ms = self._first_seen_ms
        self._first_seen_ms = {
            delayed: now_ms if delayed in moved else first_seen_ms.get(delayed, now_ms) for delayed in overdue
        }
        before_ms = now_ms - unreached_ms - 2 * self._lateness_ms
        return [delayed for delayed, first_ms in self._first_seen_ms.items() if first_ms <= before_ms]
