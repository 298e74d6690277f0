"""The due time of each queue's next message, as far as a transfer worker knows it. Knows no Redis."""

from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import NamedTuple

from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayedQueue, Head, QueueHeads, Transferred, WatchedHeads


class KnownHead(NamedTuple):
    """The head of a queue in one layout.

    Attributes:
        due_ms: When it is due, ms since the epoch.
        since_ms: A moment from which on it was due and there, ms since the epoch: the last time that Redis returned it,
            or its due time.
        entry: The beginning of its index member; None if that is not known.
    """

    due_ms: float
    since_ms: float
    entry: bytes | None

    def is_before(self, head: Head | None) -> bool:
        """Whether this head has left, if ``head`` is what the queue has now."""
        if head is None or head.due_ms > self.due_ms:
            return True
        return head.due_ms == self.due_ms and self.entry not in (None, head.entry)


class DueTimes:
    """The due times of the queues' heads by Redis's clock, which this class continues between Redis's answers.

    A queue has two heads, one in each layout.
    """

    def __init__(self) -> None:
        self._due_ms: dict[DelayedQueue, float] = {}
        self._names: list[str] = []
        #: When Redis returned this head, and the beginning of its index member; nothing of announced heads.
        self._read_ms: dict[DelayedQueue, float] = {}
        self._entries: dict[DelayedQueue, bytes] = {}
        #: Until when due messages are held back; their heads are due then.
        self._held_ms: dict[DelayedQueue, float] = {}
        self._clock_offset_ms = 0.0  # Redis's time minus ``monotonic()``

    @property
    def queues(self) -> list[str]:
        """Names of the queues to look after."""
        return list(dict.fromkeys(delayed.queue for delayed in self._due_ms))

    def look_after(self, queues: Iterable[str], *, goes_on: bool = False) -> None:
        """Looks after these queues, and forgets all others.

        Args:
            queues: Their names.
            goes_on: Whether what is known of them still counts. Otherwise their due times are unknown.
        """
        names = list(dict.fromkeys(queues))
        if goes_on and names == self._names and len(self._due_ms) == len(names) * len(LAYOUTS):
            return
        self._names = names
        known = self._due_ms if goes_on else {}
        delayed_queues = (DelayedQueue(queue, layout) for queue in names for layout in LAYOUTS)
        self._due_ms = {delayed: known.get(delayed, inf) for delayed in delayed_queues}
        self._read_ms, self._entries = {}, {}

    def update(self, heads: QueueHeads, queues: Iterable[str] | None = None) -> None:
        """Takes over the due times that Redis has returned for some queues, or for all."""
        self._set_clock(heads.now_ms)
        asked = None if queues is None else [DelayedQueue(queue, layout) for queue in queues for layout in LAYOUTS]
        for delayed in self._due_ms if asked is None else asked:
            due_ms = heads.due_ms.get(delayed)
            held_ms = 0.0 if due_ms is None else self._held_ms.get(delayed, 0.0)
            self._set(delayed, due_ms if held_ms <= heads.now_ms else max(due_ms or 0.0, held_ms), heads.now_ms)

    def note_look(self, delayed_queues: Iterable[DelayedQueue], seen: WatchedHeads) -> None:
        """Takes over the heads that Redis has returned for some queues and layouts."""
        self._set_clock(seen.now_ms)
        for delayed in delayed_queues:
            head = seen.heads.get(delayed)
            self._set(delayed, head and head.due_ms, seen.now_ms)
            self._hold(delayed, head.due_ms if head and head.held_back else None)
            if head:
                self._entries[delayed] = head.entry

    def note_head(self, delayed: DelayedQueue, due_ms: float) -> None:
        """Notes an announced new head; its queue may be new too."""
        if due_ms < self._due_ms.get(delayed, inf):
            self._due_ms[delayed] = due_ms
            self._read_ms.pop(delayed, None)
            self._entries.pop(delayed, None)

    def note_transfer(self, delayed: DelayedQueue, done: Transferred) -> None:
        """Notes the head that a queue has after a transfer."""
        self._set_clock(done.now_ms)
        self._set(delayed, done.next_due_ms, done.now_ms)
        self._hold(delayed, done.next_due_ms if done.held_back else None)

    def put_off(self, delayed: DelayedQueue, for_s: float = inf) -> None:
        """Leaves a queue out of ``due`` for some time, at most until the next ``update``."""
        self._due_ms[delayed] = self._now_ms() + 1000 * for_s

    def due(self) -> list[DelayedQueue]:
        """Returns the queues and layouts whose head is due."""
        if self.next_s() > 0:
            return []
        now_ms = self._now_ms()
        return [delayed for delayed, due_ms in self._due_ms.items() if due_ms <= now_ms]

    def overdue(self, by_ms: float) -> dict[DelayedQueue, KnownHead]:
        """Returns the heads that have been due for ``by_ms`` at least, by queue and layout."""
        before_ms = self._now_ms() - by_ms
        return {
            delayed: KnownHead(due_ms, max(due_ms, self._read_ms.get(delayed, due_ms)), self._entries.get(delayed))
            for delayed, due_ms in self._due_ms.items()
            if due_ms <= before_ms
        }

    def next_s(self) -> float:
        """Returns the time until the next head is due, in s: 0 or less when one is due, ``inf`` without any head."""
        return (min(self._due_ms.values(), default=inf) - self._now_ms()) / 1000

    def _hold(self, delayed: DelayedQueue, until_ms: float | None) -> None:
        if until_ms is None:
            self._held_ms.pop(delayed, None)
        else:
            self._held_ms[delayed] = until_ms

    def _set(self, delayed: DelayedQueue, due_ms: float | None, read_ms: float) -> None:
        self._due_ms[delayed] = inf if due_ms is None else due_ms
        self._read_ms[delayed] = read_ms
        self._entries.pop(delayed, None)

    def _set_clock(self, now_ms: float) -> None:
        self._clock_offset_ms = now_ms - monotonic() * 1000

    def _now_ms(self) -> float:
        return self._clock_offset_ms + monotonic() * 1000
