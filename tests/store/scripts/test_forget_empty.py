"""``forget_empty.lua``: makes queues without messages unknown, and clears away what is left of them."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import KEYS, PAST_MS, contents, waiting


def come_due(store: DelayStore, priority: int = 3) -> None:
    """Leaves a queue whose only message is ready."""
    store.delivery.offer("q", waiting("i", PAST_MS, priority=priority))
    assert store.delivery.transfer("q").moved == 1


def emptied(store: DelayStore) -> None:
    """Leaves a queue that had a message."""
    come_due(store)
    assert store.client.delete(*KEYS.ready("q", (0, 3, 6, 9))) == 1


def test_a_queue_with_a_message_stays_known(make_store: MakeStore) -> None:
    """In whichever form it has one, its name and everything of it stay."""
    make_store(layout="hash").delivery.offer("q", waiting("i", priority=3), waiting("j"))
    store = make_store(layout="redisson")
    store.delivery.offer("r", waiting("i"))
    before = contents(store.client)
    assert store.queues.forget_empty(["q", "r"]) == []
    assert contents(store.client) == before


@pytest.mark.parametrize("priority", [0, 9])
@pytest.mark.parametrize("prefix", ["", "shop."])
def test_a_queue_whose_messages_are_ready_stays_known(make_store: MakeStore, prefix: str, priority: int) -> None:
    """While nobody consumes what came due, its name and everything of it stay."""
    store = make_store(keys=Keys(prefix=prefix))
    come_due(store, priority)
    before = contents(store.client)
    assert store.queues.forget_empty(["q", "never used"]) == ["never used"]
    assert contents(store.client) == before
    assert store.client.pttl(store.keys.counts("q")) == -1


def test_of_an_empty_queue_the_counters_are_left_for_a_while(make_store: MakeStore) -> None:
    """Its name goes and the count of marked messages; the counters get a time to live, until it is used again."""
    store = make_store(layout="hash")
    emptied(store)
    assert store.client.pttl(KEYS.counts("q")) == -1
    assert store.queues.forget_empty(["q", "never used"]) == ["q", "never used"]
    assert store.queues.names() == []
    assert contents(store.client) == {}
    assert store.client.pttl(KEYS.counts("q")) > 0
    store.delivery.offer("q", waiting("j"))
    assert store.queues.names() == ["q"]
    store.queues.keep_alive("q")
    assert store.client.pttl(KEYS.counts("q")) == -1
