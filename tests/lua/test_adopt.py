"""``adopt.lua``: moves a message that a consumer received too early into the store."""

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.results import Offer
from kombu_delayq.store import DelayStore
from tests.lua.keyspace import FUTURE_MS, PAST_MS, Ear, clock_ms, contents, popped, waiting

UNACKED = ("unacked_index", "unacked")


def deliver(store: DelayStore, *tags: str) -> None:
    """Makes what kombu keeps of messages that a consumer holds."""
    for tag in tags:
        store.client.zadd("unacked_index", {tag: clock_ms(store.client) / 1000})
        store.client.hset("unacked", tag, f"[held as {tag}]")


def test_a_message_moves_from_the_unacked_into_the_store(store: DelayStore) -> None:
    """The adopted message is in the store as if it had been offered, and no consumer holds it any more."""
    deliver(store, "tag", "another")
    assert store.adopt("q", Offer("i", repr(FUTURE_MS), 3, "body"), "tag", *UNACKED)
    after = contents(store.client)
    assert [tag for tag, _ in after.pop(b"unacked_index")] == [b"another"]
    assert after == {
        b"unacked": {b"another": b"[held as another]"},
        b"delayq:{q}:due": [(b"\x7f00000001i", FUTURE_MS)],
        b"delayq:{q}:backup": {b"i": b"\x7f000000013body"},
        b"delayq:{q}:order": b"1",
        b"delayq:queues": {b"q"},
    }


def test_a_new_head_is_announced(store: DelayStore, ear: Ear) -> None:
    """An adopted message is announced when it is the queue's first or its earliest."""
    deliver(store, "a", "b", "c")
    for tag, due_ms in (("a", FUTURE_MS), ("b", FUTURE_MS + 1), ("c", FUTURE_MS - 1)):
        assert store.adopt("q", waiting(tag, due_ms), tag, *UNACKED)
    assert ear.heard() == [f"{FUTURE_MS:.0f} q", f"{FUTURE_MS - 1:.0f} q"]
    assert contents(store.client).keys() == {
        b"delayq:{q}:due",
        b"delayq:{q}:backup",
        b"delayq:queues",
    }


def test_a_message_that_is_due_stays_with_its_consumer(store: DelayStore, ear: Ear) -> None:
    """Where by Redis's clock the time has come, nothing changes, and the consumer delivers the message."""
    deliver(store, "tag")
    before = contents(store.client)
    for due_ms in (PAST_MS, clock_ms(store.client)):
        assert not store.adopt("q", waiting("i", due_ms), "tag", *UNACKED)
    assert contents(store.client) == before
    assert ear.heard() == []


def test_a_message_that_waits_already_is_stored_once(store: DelayStore) -> None:
    """Of a message that is in the store already, byte for byte, the consumer's copy is dropped."""
    store.offer("q", waiting("i", priority=6))
    deliver(store, "tag")
    assert store.adopt("q", waiting("i", priority=6), "tag", *UNACKED)
    assert store.size("q") == 1
    assert store.client.exists(*UNACKED) == 0


def test_another_message_under_its_id_is_kept_beside_it(store: DelayStore) -> None:
    """An adopted message whose id another one holds is stored too, and both are transferred."""
    soon_ms = clock_ms(store.client) + 500
    store.offer("q", waiting("i", soon_ms, "one"))
    deliver(store, "tag")
    assert store.adopt("q", waiting("i", soon_ms, "two"), "tag", *UNACKED)
    while store.size("q"):
        store.transfer("q")
    assert popped(store.client, "q") == [b"one", b"two"]


@pytest.mark.parametrize(
    "key", ["delayq:{q}:due", "delayq:{q}:backup", "delayq:{q}:order", "delayq:{q}:twins", *UNACKED]
)
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, ear: Ear, key: str) -> None:
    """Where somebody else's key is in the way, the error names it, and the message stays where it is."""
    deliver(store, "tag")
    store.client.delete(key)
    store.client.rpush(key, "somebody else's")
    before = contents(store.client)
    with pytest.raises(ResponseError, match="WRONGTYPE key " + key.replace("{", r"\{")):
        store.adopt("q", waiting("i"), "tag", *UNACKED)
    assert contents(store.client) == before
    assert ear.heard() == []
