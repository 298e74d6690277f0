"""``adopt.lua``: moves a message that a consumer received too early into the store."""

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.consuming import INDEX, UNACKED
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, Ear, clock_ms, contents, look, waiting


def deliver(store: DelayStore, *tags: str) -> None:
    """Makes what kombu keeps of messages that a consumer holds."""
    for tag in tags:
        store.client.zadd(INDEX, {tag: clock_ms(store.client) / 1000})
        store.client.hset(UNACKED, tag, f"[held as {tag}]")


def test_a_message_moves_from_the_unacked_into_the_store(store: DelayStore) -> None:
    """The adopted message is in the store as if it had been offered, and no consumer holds it any more."""
    deliver(store, "tag", "another")
    assert store.delivery.adopt("q", Offer("i", repr(FUTURE_MS), 3, "body"), "tag")
    after = look(store)
    assert [tag for tag, _ in after.pop(b"unacked_index:{q}")] == [b"another"]
    assert after == {
        b"unacked:{q}": {b"another": b"[held as another]"},
        b"waiting in q": [("i", FUTURE_MS, 3, b"body")],
        b"{delayq}:queues": {b"q"},
    }


def test_a_message_that_is_due_stays_with_its_consumer(store: DelayStore, ear: Ear) -> None:
    """Where by Redis's clock the time has come, nothing is stored, and the consumer delivers the message."""
    deliver(store, "tag")
    store.client.sadd("{delayq}:queues", "q")
    before = contents(store.client)
    for due_ms in (PAST_MS, clock_ms(store.client)):
        assert store.delivery.adopt("q", waiting("i", due_ms), "tag") == "due"
    assert contents(store.client) == before
    assert ear.heard() == []


def test_a_message_that_its_consumer_has_lost_is_left_alone(store: DelayStore, ear: Ear) -> None:
    """What has gone back to its queue meanwhile, because the lease of its consumer ended, is not stored as well."""
    deliver(store, "another")
    store.client.sadd("{delayq}:queues", "q")
    before = contents(store.client)
    assert store.delivery.adopt("q", waiting("i"), "tag") == "gone"
    assert contents(store.client) == before
    assert ear.heard() == []


def test_a_consumer_that_does_not_acknowledge_holds_nothing(store: DelayStore) -> None:
    """Its message is stored without a look at what is held."""
    assert store.delivery.adopt("q", waiting("i"), "") == "first"
    assert store.queues.size("q") == 1
