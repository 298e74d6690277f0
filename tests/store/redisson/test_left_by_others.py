"""What stays when another client removes or transfers messages of Redisson's layout goes with the next operation."""

import struct

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.redisson_layout import task

pytestmark = redisson_only


def transfer_as_redisson(store: DelayStore, due_ms: float) -> None:
    """Removes the messages due until then, as Redisson's transfer task does."""
    timeout, listed = RedissonKeys(store.keys).timeout("q"), RedissonKeys(store.keys).listed("q")
    entries = store.client.zrangebyscore(timeout, 0, due_ms)
    with store.client.pipeline() as pipe:
        for entry in entries:
            pipe.lrem(listed, 1, entry)
        pipe.zrem(timeout, *entries)
        pipe.execute()


def with_garbage(store: DelayStore, count: int = 200) -> None:
    """Stores messages and cancels half of them, of which the list keeps the entries."""
    store.delivery.offer("q", *(waiting(f"i{number}", PAST_MS) for number in range(count)))
    store.lookup.cancel(["q"], [f"i{number}" for number in range(0, count, 2)])
    assert store.client.llen(RedissonKeys(store.keys).listed("q")) > store.queues.size("q") > 0


def test_a_transfer_that_finds_nothing_removes_what_is_left(store: DelayStore) -> None:
    """After another client has transferred the last message, a transfer leaves no key but the names of queues."""
    with_garbage(store)
    transfer_as_redisson(store, PAST_MS)
    assert store.client.llen(RedissonKeys(store.keys).listed("q")) > 0
    store.delivery.transfer("q")
    assert contents(store.client).keys() == {b"{delayq}:queues"}


def test_the_next_message_removes_what_is_left(store: DelayStore) -> None:
    """After another client has transferred the last message, the next offer begins with clean keys."""
    with_garbage(store)
    transfer_as_redisson(store, PAST_MS)
    store.delivery.offer("q", waiting("next"))
    assert store.client.llen(RedissonKeys(store.keys).listed("q")) == 1
    assert not store.client.hexists(RedissonKeys(store.keys).ids("q"), "i1")
    assert list(store.lookup.get(["q"], ["next", "i0", "i1"])) == ["next"]


def test_the_index_stays_bounded_where_only_others_transfer(store: DelayStore) -> None:
    """Where we only offer and another client transfers all, records of what has left do not pile up."""
    store.delivery.offer("q", waiting("far"))
    for number in range(40):
        store.delivery.offer("q", *(waiting(f"i{number}-{each}", FUTURE_MS - 1000 + number) for each in range(100)))
        transfer_as_redisson(store, FUTURE_MS - 1000 + number)
    assert store.queues.size("q") == 1
    assert store.client.hlen(RedissonKeys(store.keys).ids("q")) < 2500
    assert list(store.lookup.get(["q"], ["far"])) == ["far"]


def test_a_queue_is_known_again_after_a_purge(store: DelayStore) -> None:
    """A publisher whose queue somebody purges makes it known again, even when another client was sooner."""
    for number in range(3):
        store.delivery.offer("q", waiting(f"i{number}"))
    DelayStore(store.client, store.keys, options=store.options).queues.purge("q")
    assert store.queues.names() == []
    entry = b"\x08" + bytes(8) + struct.pack("<Q", 1) + b"x"
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), {entry: PAST_MS})
    store.client.rpush(RedissonKeys(store.keys).listed("q"), entry)
    assert store.delivery.offer("q", waiting("again")).place == "first"
    assert store.queues.names() == ["q"]


@pytest.mark.parametrize("is_told", [False, True])
def test_an_id_is_free_again_after_another_client_has_transferred_its_message(store: DelayStore, is_told: bool) -> None:
    """Records of what has left hide no message that is offered again under its id, and are replaced by its own."""
    body = task("i") if is_told else b"body"
    store.delivery.offer("q", waiting("far"), waiting("i", PAST_MS, b"other" + body))
    for number in range(50):
        assert store.delivery.offer("q", waiting("i", PAST_MS + number, body)).renamed == (number == 0)
        transfer_as_redisson(store, PAST_MS + number)
        assert store.lookup.get(["q"], ["i"]) == {}
    assert store.delivery.offer("q", waiting("i", body=body), waiting("i", body=b"two"))[1:] == (1, 0, 1)
    assert [each.body for each in store.lookup.get(["q"], ["i"])["i"]] == [body, b"two"]
    assert len(store.client.hget(RedissonKeys(store.keys).ids("q"), "i")) == 2 * 17
    assert len(store.lookup.cancel(["q"], ["i"])["i"]) == 2
    assert store.lookup.get(["q"], ["i", "far"]).keys() == {"far"}
