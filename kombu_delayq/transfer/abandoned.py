"""Which overdue heads nobody transfers, as far as a deputy can tell. Knows no Redis."""

from collections.abc import Mapping
from math import inf

from kombu_delayq.store.types import Overseen, QueueForm
from kombu_delayq.transfer.due_times import KnownHead

#: How long nothing may have left before a leader whose connections are open counts as dead, in ms.
SILENCE_MS = 200.0


class AbandonedHeads:
    """Tells heads that nobody transfers from those that a leader with much to do has not reached yet.

    A head that has left since the look before is a sign of life: somebody transferred when it was due, or later. A head
    that became due before the last sign of life is not abandoned: the leader will reach it, and a deputy that did the
    same work would only add to the load. One that became due after it is abandoned if the leader is gone, or if there
    is no sign of life for ``SILENCE_MS``. So is any head that the leader does not reach for very long: it probably
    cannot transfer it.
    """

    def __init__(self) -> None:
        self._first_seen_ms: dict[QueueForm, float] = {}  # overdue heads: since when nobody else has moved them
        #: Since the last sign of life: due time of the first head that was left, and when it was found.
        self._left_due_ms = self._silent_since_ms = inf

    def find(
        self, known: Mapping[QueueForm, KnownHead], seen: Overseen, late_ms: float, unreached_ms: float
    ) -> list[QueueForm]:
        """Compares the heads before a look with those that Redis has returned.

        Args:
            known: The overdue heads as they were known before the look.
            seen: What Redis has returned for these.
            late_ms: For how long a head must have been due to be found.
            unreached_ms: How long a leader that lives needs at most to reach a head.

        Returns:
            The queues and forms of the abandoned heads, the longest overdue first.
        """
        moved = {form for form, head in known.items() if head.is_before(seen.heads.get(form))}
        life_ms = max((known[form].since_ms for form in moved), default=-inf)
        if life_ms >= self._left_due_ms:
            self._left_due_ms = self._silent_since_ms = inf
        dues_ms = {form: head.due_ms for form, head in seen.heads.items() if head.due_ms <= seen.now_ms - late_ms}
        self._first_seen_ms = {
            form: seen.now_ms if form in moved else self._first_seen_ms.get(form, seen.now_ms) for form in dues_ms
        }
        left = [form for form, due_ms in dues_ms.items() if due_ms > life_ms]
        if left and self._silent_since_ms == inf:
            self._silent_since_ms = seen.now_ms
            self._left_due_ms = min(dues_ms[form] for form in left)
        is_dead = seen.is_gone or seen.now_ms - self._silent_since_ms >= SILENCE_MS
        unreached = [form for form, first_ms in self._first_seen_ms.items() if seen.now_ms - first_ms >= unreached_ms]
        return sorted({*unreached, *(left if is_dead else ())}, key=dues_ms.__getitem__)
