"""How a transfer worker looks at many queues."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kombu_delayq.store.types import DelayedQueue, QueueHeads, Transferred
from kombu_delayq.transfer import due_messages
from kombu_delayq.transfer.due_messages import DueMessages

NOW_MS = 1_800_000_000_000.0


class _Store:
    """A store of queues, of which one has a message that is due; it notes what it is asked."""

    layout = "hash"

    def __init__(self, queue: str, layout: str = "hash") -> None:
        self.delivery = self
        self.queues = SimpleNamespace(know=bool)
        self.asked: list[Any] = []
        self.due_ms = {DelayedQueue(queue, layout): NOW_MS - 1}

    def heads(self, queues: list[str]) -> QueueHeads:
        """Notes which queues are asked for."""
        self.asked.append(queues)
        return QueueHeads(
            NOW_MS, {delayed: due_ms for delayed, due_ms in self.due_ms.items() if delayed.queue in queues}
        )

    def transfer(self, queue: str, layout: str) -> Transferred:
        """Notes what is transferred."""
        self.asked.append(queue)
        self.due_ms.clear()
        return Transferred(1, 0, 1.0, NOW_MS, None)


@pytest.mark.parametrize(
    ("queue", "asked"), [("a", [["a", "b"], "a", ["c", "d"], ["e"]]), ("c", [["a", "b"], ["c", "d"], "c", ["e"]])]
)
def test_many_queues_hold_up_no_message_for_long(queue: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads a page of queues at a time, and transfers what is due between two pages."""
    monkeypatch.setattr(due_messages, "PAGE", 2)
    messages, store = DueMessages(None), _Store(queue)
    of_store: Any = store
    messages.due_times.look_after("abcde")
    messages.look(of_store, "abcde", partial(messages.transfer, of_store))
    assert store.asked == asked


@pytest.mark.parametrize(("layout", "asked"), [("hash", []), ("redisson", ["a"])])
def test_a_queue_that_others_have_emptied_costs_no_transfer(layout: str, asked: list[Any]) -> None:
    """A transfer clears it only in a layout that other clients use, as these clients leave keys behind.

    In a cluster a queue also seems empty whose node is away: thousands of transfers would wait for that node in turn.
    """
    messages, store = DueMessages(None), _Store("a", layout)
    of_store: Any = store
    store.layout = layout
    messages.due_times.look_after("a")
    messages.look(of_store, "a")
    store.due_ms.clear()
    messages.look(of_store, "a")
    del store.asked[:]
    messages.clear(of_store)
    assert store.asked == asked


def test_without_queues_the_clock_of_redis_is_asked_for() -> None:
    """A worker that knows no queue yet knows when the first message that it hears of is due."""
    messages, store = DueMessages(None), _Store("a")
    of_store: Any = store
    messages.look(of_store, ())
    messages.due_times.note_head(DelayedQueue("a", "hash"), NOW_MS - 1)
    assert store.asked == [[]]
    assert messages.due_times.due() == [DelayedQueue("a", "hash")]
