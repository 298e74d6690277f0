"""Which overdue heads nobody transfers, as far as a standby can tell. Knows no Redis."""

from collections.abc import Iterable, Mapping
from math import inf

from kombu_delayq.store.types import QueueForm, WatchedHeads
from kombu_delayq.transfer.due_times import KnownHead

#: How long nothing may have left before a leader whose connections are open counts as dead, in ms.
SILENCE_MS = 200.0
#: The lateness of a leader that a look finds counts at the next look by this factor, and so on.
LATENESS_KEPT = 0.95


class AbandonedHeads:
    """Tells heads that nobody transfers from those that a leader with much to do has not reached yet.

    A head that has left since the look before is a sign of life: somebody transferred when it was due, or later. A head
    that became due before the last sign of life is not abandoned: the leader will reach it, and a standby that did the
    same work would only add to the load. One that became due after it is abandoned if the leader is gone, or if there
    is no sign of life for ``SILENCE_MS``. So is a head that the leader does not reach although it reaches others much
    sooner: it probably cannot transfer it.
    """

    def __init__(self) -> None:
        self._first_seen_ms: dict[QueueForm, float] = {}  # overdue heads: since when nobody else has moved them
        self._lateness_ms = 0.0  # how late the leader has been lately
        #: Since the last sign of life: due time of the first head that was left, and when it was found.
        self._left_due_ms = self._silent_since_ms = inf

    def find(
        self, known: Mapping[QueueForm, KnownHead], seen: WatchedHeads, late_ms: float, unreached_ms: float
    ) -> list[QueueForm]:
        """Compares the heads before a look with those that Redis has returned.

        Args:
            known: The overdue heads as they were known before the look.
            seen: What Redis has returned for these.
            late_ms: For how long a head must have been due to be found.
            unreached_ms: By how much longer than usual a leader that lives may need to reach a head.

        Returns:
            The queues and forms of the abandoned heads, the longest overdue first.
        """
        moved = {form: head for form, head in known.items() if head.is_before(seen.heads.get(form))}
        dues_ms = {form: head.due_ms for form, head in seen.heads.items() if head.due_ms <= seen.now_ms - late_ms}
        life_ms = max((head.since_ms for head in moved.values()), default=-inf)
        left = [form for form, due_ms in dues_ms.items() if due_ms > life_ms]
        if life_ms >= self._left_due_ms:
            self._left_due_ms = self._silent_since_ms = inf
        if left and self._silent_since_ms == inf:
            self._silent_since_ms = seen.now_ms
            self._left_due_ms = min(dues_ms[form] for form in left)
        is_dead = seen.is_gone or seen.now_ms - self._silent_since_ms >= SILENCE_MS
        unreached = self._unreached(moved, seen.now_ms, dues_ms, unreached_ms)
        return sorted({*unreached, *(left if is_dead else ())}, key=dues_ms.__getitem__)

    def _unreached(
        self, moved: Mapping[QueueForm, KnownHead], now_ms: float, overdue: Iterable[QueueForm], unreached_ms: float
    ) -> list[QueueForm]:
        seen_before = (head for head in moved.values() if head.entry is not None)  # an announcement may be nonsense
        late_ms = max((now_ms - head.due_ms for head in seen_before), default=0.0)
        self._lateness_ms = max(late_ms, LATENESS_KEPT * self._lateness_ms)
        first_seen_ms = self._first_seen_ms
        self._first_seen_ms = {form: now_ms if form in moved else first_seen_ms.get(form, now_ms) for form in overdue}
        before_ms = now_ms - unreached_ms - 2 * self._lateness_ms
        return [form for form, first_ms in self._first_seen_ms.items() if first_ms <= before_ms]
