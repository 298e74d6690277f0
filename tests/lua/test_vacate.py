"""``vacate.lua``: clears away what is left of a queue without messages."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, contents, waiting


def counted(store: DelayStore) -> int:
    """Returns for how many ms the counters of the queue are kept; -1 for good, -2 if there are none."""
    return int(store.client.pttl(Keys().counts("q")))


@pytest.mark.parametrize("how", ["look", "at_once", "unused"])
def test_a_queue_with_a_message_keeps_everything(store: DelayStore, make_store: MakeStore, how: str) -> None:
    """In whichever form it has one, nothing of it is cleared away."""
    make_store(layout="hash").delivery.offer("q", waiting("i", priority=3), waiting("j"))
    make_store(layout="redisson").delivery.offer("r", waiting("i"))
    before = contents(store.client)
    assert store.queues.vacate(["q", "r", "none"], how, ["hash", "redisson"]) == [True, True, False]
    assert contents(store.client) == before


def test_of_an_empty_queue_nothing_is_left(make_store: MakeStore) -> None:
    """The count of marked messages goes, and the counters at once or after a time; not if somebody only looks."""
    store = make_store(layout="hash")
    store.delivery.offer("q", waiting("i", PAST_MS, priority=3))
    store.delivery.transfer("q")
    assert store.queues.vacate(["q"], "look", ["hash"]) == [False]
    assert store.client.exists(Keys().order("q"))
    assert counted(store) == -1
    assert store.queues.vacate(["q"], "at_once", ["hash"]) == [False]
    assert not store.client.exists(Keys().order("q"))
    assert counted(store) > 0
    assert store.queues.vacate(["q"], "unused", ["hash"]) == [False]
    assert counted(store) == -2
