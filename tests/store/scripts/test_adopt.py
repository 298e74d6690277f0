"""``adopt.lua``: moves a message that a consumer received too early into the store."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.store.consuming import INDEX, UNACKED
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ORDER,
    PAST_MS,
    Ear,
    announced,
    clock_ms,
    contents,
    look,
    popped,
    refuses_a_key_of_the_wrong_type,
    waiting,
)


def deliver(store: DelayStore, *tags: str) -> None:
    """Makes what kombu keeps of messages that a consumer holds."""
    for tag in tags:
        store.client.zadd(INDEX, {tag: clock_ms(store.client) / 1000})
        store.client.hset(UNACKED, tag, f"[held as {tag}]")


def test_a_message_moves_from_the_unacked_into_the_store(store: DelayStore) -> None:
    """The adopted message is in the store as if it had been offered, and no consumer holds it any more."""
    deliver(store, "tag", "another")
    assert store.delivery.adopt("q", Offer("i", repr(FUTURE_MS), 3, "body"), "tag", INDEX, UNACKED)
    after = look(store)
    assert [tag for tag, _ in after.pop(b"unacked_index:{q}")] == [b"another"]
    assert after == {
        b"unacked:{q}": {b"another": b"[held as another]"},
        b"waiting in q": [("i", FUTURE_MS, 3, b"body")],
        b"{delayq}:queues": {b"q"},
    }


def test_a_new_head_is_announced(store: DelayStore, ear: Ear) -> None:
    """An adopted message is announced when it is the queue's first or its earliest."""
    deliver(store, "a", "b", "c")
    for tag, due_ms in (("a", FUTURE_MS), ("b", FUTURE_MS + 1), ("c", FUTURE_MS - 1)):
        assert store.delivery.adopt("q", waiting(tag, due_ms), tag, INDEX, UNACKED)
    assert ear.heard() == [announced(store, FUTURE_MS), announced(store, FUTURE_MS - 1)]
    assert look(store).keys() == {b"waiting in q", b"{delayq}:queues"}


def test_a_message_that_is_due_stays_with_its_consumer(store: DelayStore, ear: Ear) -> None:
    """Where by Redis's clock the time has come, nothing is stored, and the consumer delivers the message."""
    deliver(store, "tag")
    store.client.sadd("{delayq}:queues", "q")
    before = contents(store.client)
    for due_ms in (PAST_MS, clock_ms(store.client)):
        assert store.delivery.adopt("q", waiting("i", due_ms), "tag", INDEX, UNACKED) == "due"
    assert contents(store.client) == before
    assert ear.heard() == []


def test_a_message_that_its_consumer_has_lost_is_left_alone(store: DelayStore, ear: Ear) -> None:
    """What has gone back to its queue meanwhile, because the lease of its consumer ended, is not stored as well."""
    deliver(store, "another")
    store.client.sadd("{delayq}:queues", "q")
    before = contents(store.client)
    assert store.delivery.adopt("q", waiting("i"), "tag", INDEX, UNACKED) == "gone"
    assert contents(store.client) == before
    assert ear.heard() == []


def test_a_consumer_that_does_not_acknowledge_holds_nothing(store: DelayStore) -> None:
    """Its message is stored without a look at what is held."""
    assert store.delivery.adopt("q", waiting("i"), "", INDEX, UNACKED) == "first"
    assert store.queues.size("q") == 1


def test_a_message_that_waits_already_is_stored_once(store: DelayStore) -> None:
    """Of a message that is in the store already, byte for byte, the consumer's copy is dropped."""
    store.delivery.offer("q", waiting("i", priority=6))
    deliver(store, "tag")
    assert store.delivery.adopt("q", waiting("i", priority=6), "tag", INDEX, UNACKED)
    assert store.queues.size("q") == 1
    assert store.client.exists(INDEX, UNACKED) == 0


def test_another_message_under_its_id_is_kept_beside_it(store: DelayStore) -> None:
    """An adopted message whose id another one holds is stored too, and both are transferred."""
    soon_ms = clock_ms(store.client) + 500
    store.delivery.offer("q", waiting("i", soon_ms, "one"))
    deliver(store, "tag")
    assert store.delivery.adopt("q", waiting("i", soon_ms, "two"), "tag", INDEX, UNACKED)
    until(lambda: not store.delivery.transfer("q").moved and not store.queues.size("q"))
    assert popped(store.client, "q") == [b"one", b"two"]


@pytest.mark.parametrize("key", [DUE, BODIES, ORDER, DUPLICATES, INDEX, UNACKED])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, ear: Ear, key: str) -> None:
    """Where somebody else's key is in the way, the error names it, and the message stays where it is."""
    deliver(store, "tag")
    store.client.sadd("{delayq}:queues", "q")
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.delivery.adopt("q", waiting("i"), "tag", INDEX, UNACKED))
    assert ear.heard() == []
