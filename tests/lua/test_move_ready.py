"""``move_ready.lua``: moves the next messages of a queue's list to the list of another queue."""

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from tests.support.slots import SLOTS

pytestmark = pytest.mark.skipif(SLOTS, reason="the lists are in two slots")


def test_the_next_messages_move_in_their_order(store: DelayStore) -> None:
    """They stand behind those of the other list, in their order; another one that is next stops the move."""
    store.client.lpush("old", "a", "b", "c", "d")
    store.client.lpush("new", "first")
    assert store.moving.next_ready("old", 3)[0] == [b"a", b"b", b"c"]
    assert store.moving.move_ready("old", "new", 0, [(b"a", b"A"), (b"b", b"B"), (b"x", b"X"), (b"c", b"C")]) == 2
    assert store.client.lrange("new", 0, -1) == [b"B", b"A", b"first"]
    assert store.client.lrange("old", 0, -1) == [b"d", b"c"]
    assert store.moving.move_ready("old", "new", 0, [(b"a", b"A")]) == 0


@pytest.mark.parametrize("key", ["old", "new"])
def test_a_key_of_the_wrong_type_is_refused_by_name(store: DelayStore, key: str) -> None:
    """Whichever list is somebody else's key, it is named, and nothing moves."""
    store.client.lpush("old", "a")
    store.client.lpush("new", "b")
    store.client.delete(key)
    store.client.sadd(key, "somebody else's")
    with pytest.raises(ResponseError, match=f"WRONGTYPE key {key}"):
        store.moving.move_ready("old", "new", 0, [(b"a", b"A")])
