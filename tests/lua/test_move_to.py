"""``move_to.lua``: moves waiting messages of a queue to another queue, in one step."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.upkeep.moving import Move
from tests.support.slots import SLOTS
from tests.support.store.keyspace import FUTURE_MS, announced, ear_of, refuses_a_key_of_the_wrong_type, waiting

pytestmark = pytest.mark.skipif(SLOTS, reason="two slots: depart and arrive move them")


def moves_of(store: DelayStore, queue: str = "old") -> list[Move]:
    return [Move(one, b"moved") for one in store.scan.browse(queue).messages]


def test_the_keys_of_an_empty_queue_go(store: DelayStore) -> None:
    """What was known of the queue that is empty now is gone; a new head of the other is announced."""
    store.delivery.offer("old", waiting("i", priority=3), waiting("j", FUTURE_MS + 1), waiting("k", FUTURE_MS + 1))
    ear = ear_of(store)
    assert store.moving.move_to("old", "new", moves_of(store)) == ["moved"] * 3
    assert store.client.exists(*store.keys.stored("old", store.backup)[:2]) == 0
    assert ear.heard() == [announced(store, FUTURE_MS, "new")]


def test_keys_expire_no_sooner(store: DelayStore) -> None:
    """A queue that expires gives its time to a new one; one that does not expire never does."""
    store.delivery.offer("old", waiting("i"), expire_ms=60_000)
    left = store.client.pttl(store.keys.stored("old", store.backup)[0])
    store.moving.move_to("old", "new", moves_of(store))
    assert store.client.pttl(store.keys.stored("new", store.backup)[0]) >= left - 5_000
    store.delivery.offer("kept", waiting("j"))
    store.moving.move_to("new", "kept", moves_of(store, "new"))
    assert store.client.pttl(store.keys.stored("kept", store.backup)[0]) == -1


@pytest.mark.parametrize("place", range(8))
def test_a_key_of_the_wrong_type_is_refused_by_name(store: DelayStore, place: int) -> None:
    """Whichever key of either queue is somebody else's, it is named, and nothing changes."""
    store.delivery.offer("old", waiting("i"))
    store.queues.know("new")
    moves = moves_of(store)
    key = [*store.keys.stored("new", store.backup), *store.keys.stored("old", store.backup)][place]
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.moving.move_to("old", "new", moves))
