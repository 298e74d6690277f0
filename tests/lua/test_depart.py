"""``depart.lua``: takes waiting messages out of a queue, on their way to a queue in another slot."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.upkeep.moving import Move
from tests.support.store.keyspace import FUTURE_MS, refuses_a_key_of_the_wrong_type, waiting


def depart(store: DelayStore, moves: list[Move], name: str = "m1", done: str = "") -> list[str]:
    return store.moving.depart("old", "new", moves, name, done)


def moves_of(store: DelayStore) -> list[Move]:
    return [Move(one, b"moved") for one in store.scan.browse("old").messages]


def test_messages_are_on_their_way(store: DelayStore) -> None:
    """They leave the queue, with all that the other queue needs, and those that have changed stay."""
    store.delivery.offer("old", waiting("i", priority=3), waiting("j", FUTURE_MS + 1))
    moves = moves_of(store)
    store.lookup.cancel(["old"], ["j"])
    assert depart(store, moves) == ["moved", "not_delayed"]
    assert store.queues.size("old") == 0
    name, to, identity, due, priority, body = store.client.lrange(store.keys.moving("old"), 0, -1)
    assert (name, to, identity, float(due), priority, body) == (b"m1", b"new", b"i", FUTURE_MS, b"3", b"moved")


def test_one_move_after_the_other(store: DelayStore) -> None:
    """While messages of a move are on their way none other begins; the list goes with the name of its move alone."""
    store.delivery.offer("old", waiting("i"), waiting("j"))
    first, second = moves_of(store)
    assert depart(store, [first]) == ["moved"]
    assert depart(store, [second], "m2") == depart(store, [second], "m2", done="m0") == ["busy"]
    assert depart(store, [second], "m2", done="m1") == ["moved"]
    assert store.client.lindex(store.keys.moving("old"), 0) == b"m2"
    assert depart(store, [], "", done="m2") == []
    assert not store.client.exists(store.keys.moving("old"))


@pytest.mark.parametrize("place", range(5))
def test_a_key_of_the_wrong_type_is_refused_by_name(store: DelayStore, place: int) -> None:
    """Whichever key is somebody else's, it is named, and nothing changes."""
    store.delivery.offer("old", waiting("i"))
    moves = moves_of(store)
    key = [*store.keys.stored("old", store.backup), store.keys.moving("old")][place]
    refuses_a_key_of_the_wrong_type(store, key, lambda: depart(store, moves))
