"""When each queue's next message is due, as far as a transfer worker knows. Knows no Redis."""

from collections.abc import Iterable
from math import inf
from time import monotonic

from kombu_delayq.options import BACKUPS
from kombu_delayq.store.types import Heads, QueueForm, Transferred


class Agenda:
    """The due times of the queues' heads, by Redis's clock, which goes on between its answers.

    A queue has two: its messages may be in either form of backup.
    """

    def __init__(self) -> None:
        self._due_ms: dict[QueueForm, float] = {}
        self._ahead_ms = 0.0  # Redis's clock before ours, which counts from anywhere

    @property
    def queues(self) -> list[str]:
        """The queues to look after."""
        return list(dict.fromkeys(form.queue for form in self._due_ms))

    def look_after(self, queues: Iterable[str]) -> None:
        """Starts anew with these queues, of which nothing is known."""
        self._due_ms = dict.fromkeys((QueueForm(queue, backup) for queue in queues for backup in BACKUPS), inf)

    def learn(self, heads: Heads) -> None:
        """Takes over what Redis says of all queues."""
        self._set_clock(heads.now_ms)
        self._due_ms = {form: heads.due_ms.get(form, inf) for form in self._due_ms}

    def expect(self, form: QueueForm, due_ms: float) -> None:
        """Notes a new head, of a queue that may be new too."""
        self._due_ms[form] = min(due_ms, self._due_ms.get(form, inf))

    def moved(self, form: QueueForm, done: Transferred) -> None:
        """Notes what a transfer says of what is left."""
        self._set_clock(done.now_ms)
        self._due_ms[form] = inf if done.next_due_ms is None else done.next_due_ms

    def leave(self, form: QueueForm) -> None:
        """Lets messages be, until Redis is asked again."""
        self._due_ms[form] = inf

    def due(self) -> list[QueueForm]:
        """Returns those whose head is due."""
        now_ms = self._now_ms()
        return [form for form, due_ms in self._due_ms.items() if due_ms <= now_ms]

    def next_s(self) -> float:
        """Returns how long it is in s until the next head is due; 0 or less when one is, ``inf`` without any."""
        return (min(self._due_ms.values(), default=inf) - self._now_ms()) / 1000

    def _set_clock(self, now_ms: float) -> None:
        self._ahead_ms = now_ms - monotonic() * 1000

    def _now_ms(self) -> float:
        return self._ahead_ms + monotonic() * 1000
