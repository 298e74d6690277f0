"""What is due next among the delayed messages of a test, without reading all of them before each task."""

from collections.abc import Callable
from typing import NamedTuple

from celery_ext.testing.brokers import Broker
from celery_ext.testing.sending import Sending, Sent
from celery_ext.waiting import DelayedTask
from kombu_delayq.store.types import Waiting


class _Entry(NamedTuple):
    """A task that waits, and what its place depends on.

    Attributes:
        task: The task.
        task_id: Its id.
        latest: The latest call of this id; with another one, the place may be another.
        is_countdown: Whether it is due by the clock that stands still.
        place: When it is due by its clock, s since the epoch, to the ms; and its number.
    """

    task: DelayedTask
    task_id: str
    latest: Sent | None
    is_countdown: bool
    place: tuple[float, int]


class Agenda:
    """The tasks that wait, in the order in which they come due. It reads them anew when the broker has changed.

    Countdowns and moments are due by clocks of their own, which drift apart while the test runs. So there is an order
    for each of both.

    Args:
        broker: Where they wait.
        sending: What the apps have sent.
    """

    def __init__(self, broker: Broker, sending: Sending) -> None:
        self._broker, self._sending = broker, sending
        self._known: dict[Waiting, _Entry] = {}
        self._orders: tuple[list[_Entry], list[_Entry]] = ([], [])
        self._stamp: tuple[int, int] | None = None

    def take(self, is_due: Callable[[DelayedTask], bool]) -> DelayedTask | None:
        """Returns the first task that is due, and forgets it; None if none is.

        Args:
            is_due: Whether a task is due.
        """
        self._look()
        heads = [
            (self.place(entry.task), order, entry)
            for order in self._orders
            if (entry := next((one for one in order if is_due(one.task)), None)) is not None
        ]
        if not heads:
            return None
        _, order, entry = min(heads, key=lambda head: head[0])
        order.remove(entry)
        return entry.task

    def place(self, task: DelayedTask) -> tuple[float, int]:
        """Returns the place of a task in the order of all: in how many s it is due, to the ms, and its number."""
        call = self._sending.call_of(task)
        # To the ms: sums of countdowns differ in their last digits.
        return round(self._sending.left_s(task), 3), -1 if call is None else call.number

    def _look(self) -> None:
        stamp = self._broker.stamp()
        if stamp is not None and stamp == self._stamp:
            return
        self._stamp, known = stamp, self._known
        self._known = {task.message: self._entry(known.get(task.message), task) for task in self._broker.waiting()}
        self._orders = ([], [])
        for entry in sorted(self._known.values(), key=lambda one: one.place):
            self._orders[entry.is_countdown].append(entry)

    def _entry(self, known: _Entry | None, task: DelayedTask) -> _Entry:
        if known is not None and known.latest is self._sending.sent.get(known.task_id):
            return known
        call, latest = self._sending.call_of(task), self._sending.sent.get(task.id)
        if call is not None and call.is_countdown:
            return _Entry(task, task.id, latest, True, (round(call.sent_s + call.delay_s, 3), call.number))
        number = -1 if call is None else call.number
        return _Entry(task, task.id, latest, False, (round(task.message.due_ms / 1000, 3), number))
