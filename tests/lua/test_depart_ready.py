"""``depart_ready.lua``: takes the next messages of a queue's list out, on their way to a queue in another slot."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import refuses_a_key_of_the_wrong_type

MESSAGES = [(b"a", b"A"), (b"b", b"B")]


def depart(store: DelayStore, messages: list[tuple[bytes, bytes]], name: str = "m1", at: int = 0) -> int | None:
    return store.moving.depart_ready("old", "new", at, messages, name)


def test_the_next_messages_are_on_their_way(store: DelayStore) -> None:
    """They are noted in their order, with the number of their list; another one that is next stops the move."""
    old = store.moving._client.ready("old")[1]
    store.client.lpush(old, "a", "b", "c")
    assert depart(store, [*MESSAGES, (b"x", b"X"), (b"c", b"C")], at=1) == 2
    on_their_way = [b"m1", b"new", b"", b"", b"1", b"A", b"", b"", b"1", b"B"]
    assert store.client.lrange(store.keys.moving("old"), 0, -1) == on_their_way
    assert store.client.lrange(old, 0, -1) == [b"c"]


def test_one_move_after_the_other(store: DelayStore) -> None:
    """While messages of a move are on their way none other begins; a move of no message leaves nothing."""
    store.client.lpush("old", "a", "b")
    assert depart(store, [(b"x", b"X")]) == 0
    assert not store.client.exists(store.keys.moving("old"))
    assert depart(store, MESSAGES[:1]) == 1
    assert depart(store, MESSAGES[1:], "m2") is None
    assert store.client.lrange("old", 0, -1) == [b"b"]


@pytest.mark.parametrize("place", range(2))
def test_a_key_of_the_wrong_type_is_refused_by_name(store: DelayStore, place: int) -> None:
    """Whichever key is somebody else's, it is named, and nothing changes."""
    store.client.lpush("old", "a", "b")
    key = ["old", store.keys.moving("old")][place]
    refuses_a_key_of_the_wrong_type(store, key, lambda: depart(store, MESSAGES))
