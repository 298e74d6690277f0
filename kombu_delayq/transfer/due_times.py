"""The due time of each queue's next message, as far as a transfer worker knows it. Knows no Redis."""

from collections.abc import Iterable
from math import inf
from time import monotonic

from kombu_delayq.options import BACKUPS
from kombu_delayq.store.types import QueueForm, QueueHeads, Transferred


class DueTimes:
    """The due times of the queues' heads by Redis's clock, which this class continues between Redis's answers.

    A queue has two heads, one in each form of backup.
    """

    def __init__(self) -> None:
        self._due_ms: dict[QueueForm, float] = {}
        self._clock_offset_ms = 0.0  # Redis's time minus ``monotonic()``

    @property
    def queues(self) -> list[str]:
        """Names of the queues to look after."""
        return list(dict.fromkeys(form.queue for form in self._due_ms))

    def look_after(self, queues: Iterable[str]) -> None:
        """Starts again with these queues, whose due times are unknown, and forgets all others."""
        self._due_ms = dict.fromkeys((QueueForm(queue, backup) for queue in queues for backup in BACKUPS), inf)

    def update(self, heads: QueueHeads) -> None:
        """Takes over the due times that Redis has returned for all queues."""
        self._set_clock(heads.now_ms)
        self._due_ms = {form: heads.due_ms.get(form, inf) for form in self._due_ms}

    def note_head(self, form: QueueForm, due_ms: float) -> None:
        """Notes an announced new head; its queue may be new too."""
        self._due_ms[form] = min(due_ms, self._due_ms.get(form, inf))

    def note_transfer(self, form: QueueForm, done: Transferred) -> None:
        """Notes the head that a queue has after a transfer."""
        self._set_clock(done.now_ms)
        self._due_ms[form] = inf if done.next_due_ms is None else done.next_due_ms

    def put_off(self, form: QueueForm) -> None:
        """Leaves a queue out of ``due`` until the next ``update``."""
        self._due_ms[form] = inf

    def due(self) -> list[QueueForm]:
        """Returns the queues and forms whose head is due."""
        now_ms = self._now_ms()
        return [form for form, due_ms in self._due_ms.items() if due_ms <= now_ms]

    def next_s(self) -> float:
        """Returns the time until the next head is due, in s: 0 or less when one is due, ``inf`` without any head."""
        return (min(self._due_ms.values(), default=inf) - self._now_ms()) / 1000

    def _set_clock(self, now_ms: float) -> None:
        self._clock_offset_ms = now_ms - monotonic() * 1000

    def _now_ms(self) -> float:
        return self._clock_offset_ms + monotonic() * 1000
