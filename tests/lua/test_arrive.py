"""``arrive.lua``: puts messages that come from a queue in another slot into their queue, once for each move."""

from typing import Any

import pytest

from kombu_delayq.connection.text import as_text
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, announced, ear_of, refuses_a_key_of_the_wrong_type

ROWS: list[Any] = ["i", repr(FUTURE_MS), "3", b"one", "i", repr(FUTURE_MS + 1), "0", b"two"]


def arrive(store: DelayStore, name: str = "m1", rows: list[Any] = ROWS) -> str:
    keys = [*store.keys.stored("new", store.backup), store.keys.arrived("new", name)]
    return as_text(store.moving._client.run("arrive", keys, [store.moving._client.wake("new"), "new", *rows]))


def test_a_move_comes_once(store: DelayStore) -> None:
    """The same move again changes nothing, also after its messages have left; another move does."""
    ear = ear_of(store)
    assert arrive(store) == "first"
    assert ear.heard() == [announced(store, FUTURE_MS, "new")]
    assert [(one.priority, one.body) for one in store.scan.browse("new").messages] == [(3, b"one"), (0, b"two")]
    assert arrive(store) == "repeated"
    store.queues.purge("new")
    assert arrive(store) == "repeated"
    assert store.queues.size("new") == 0
    assert arrive(store, "m2") == "first"


@pytest.mark.parametrize("place", range(5))
def test_a_key_of_the_wrong_type_is_refused_by_name(store: DelayStore, place: int) -> None:
    """Whichever key is somebody else's, it is named, and nothing changes."""
    key = [*store.keys.stored("new", store.backup), store.keys.arrived("new", "m1")][place]
    refuses_a_key_of_the_wrong_type(store, key, lambda: arrive(store))
