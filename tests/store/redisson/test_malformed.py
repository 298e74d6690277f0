"""Members of the ZSET that are no entries do not stop a queue in Redisson's layout."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, popped, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.parts import scanned, whole

pytestmark = redisson_only

MALFORMED = [
    *(b"", b"\x07", b"\x08", b"x", b"\0" * 15, b"\0" * 17, b"\xff" * 9, b"\xff" * 40, b"\x08" + b"\xff" * 100),
    *(b"\x07" + b"\0" * 6, b"\x07\0\0\0\x01\0\x01\0" + b"\x05" + b"\0" * 7 + b"body"),
    *(b'{"headers": {"task": "t", "id": "a"}}', b'{"headers": {"task": "t", "id": "b"}}'),
    *(b"\x08" * 9 + b"\xff" * 8 + b"body", b"\x08" * 9 + b"\xff" * 8 + b"other body"),
]


def add(store: DelayStore, due_ms: float, *members: bytes) -> None:
    """Puts members into ZSET and LIST, as another program may."""
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), dict.fromkeys(members, due_ms))
    store.client.rpush(RedissonKeys(store.keys).listed("q"), *members)


@pytest.mark.parametrize("batch", [1, 3, 1000])
def test_a_transfer_counts_them_as_lost(make_store: MakeStore, batch: int) -> None:
    """What is due beside them is moved, they are gone and counted, and nothing is left of them."""
    store = make_store(transfer_batch=2 * batch)
    store.delivery.offer("q", waiting("before", PAST_MS), waiting("after", PAST_MS))
    add(store, PAST_MS, *MALFORMED)
    lost = moved = 0
    while True:
        done = store.delivery.transfer("q")
        lost, moved = lost + done.lost, moved + done.moved
        if not done.more:
            break
    assert (moved, lost) == (2, len(MALFORMED))
    assert sorted(popped(store.client, "q")) == [b"body of after", b"body of before"]
    assert contents(store.client).keys() == {b"{delayq}:queues"}


@pytest.mark.parametrize("count", [1, 2, 100])
def test_pages_have_each_once(store: DelayStore, count: int) -> None:
    """Pages of any size have each of them once, without a body, and the messages between."""
    store.delivery.offer("q", waiting("before"), waiting("after"), waiting("last", FUTURE_MS + 1))
    add(store, FUTURE_MS, *MALFORMED)
    page, found = store.scan.browse("q", count=count), []
    for _ in range(100):
        found += page.messages
        if not page.more:
            break
        page = store.scan.browse("q", page, count=count)
    assert sorted(each.body for each in found if each.body) == [b"body of after", b"body of before", b"body of last"]
    assert sum(each.body is None for each in found) == len(MALFORMED)
    assert len(scanned(store, whole(store), count=count)) == len(MALFORMED) + 3


def test_messages_of_other_clients_are_found_beside_them(store: DelayStore) -> None:
    """The search for messages of other clients ends, and those of ours are found, cancelled and moved."""
    add(store, FUTURE_MS, *MALFORMED)
    store.delivery.offer("q", waiting("i"), waiting("j"))
    add(store, FUTURE_MS + 1, *(bytes([8]) * 16 + bytes([n]) for n in range(1, 200)))
    assert store.lookup.index("q") == 0
    assert len(store.lookup.cancel(["q"], ["i", "unknown"])["i"]) == 1
    assert list(store.lookup.get(["q"], ["i", "j"])) == ["j"]


def test_a_due_time_before_the_epoch_is_past(store: DelayStore) -> None:
    """What another program has put before the epoch is transferred, and holds up nothing."""
    store.delivery.offer("q", waiting("i", 0.0), waiting("later"))
    store.client.zincrby(
        RedissonKeys(store.keys).timeout("q"), -7.5, store.client.zrange(RedissonKeys(store.keys).timeout("q"), 0, 0)[0]
    )
    done = store.delivery.transfer("q")
    assert (done.moved, done.next_due_ms) == (1, FUTURE_MS)
    assert popped(store.client, "q") == [b"body of i"]
