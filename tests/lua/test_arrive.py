"""``arrive.lua``: puts messages that come from a queue in another slot into their queue, once for each move."""

from typing import Any

import pytest

from kombu_delayq.connection.text import as_text
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, announced, ear_of, refuses_a_key_of_the_wrong_type

ROWS: list[Any] = ["i", repr(FUTURE_MS), "3", b"one", "i", repr(FUTURE_MS + 1), "0", b"two"]


def arrive(store: DelayStore, name: str = "m1", rows: list[Any] = ROWS) -> str:
    keys = [
        *store.keys.stored("new", store.backup),
        store.keys.arrived("new", name),
        *store.moving._client.ready("new"),
    ]
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


def test_what_was_ready_is_ready(store: DelayStore) -> None:
    """It comes once, behind what is in the list of its number, in its order, beside what waits."""
    first, second, *_, last = store.moving._client.ready("new")
    store.client.lpush(second, "first")
    rows = [
        "",
        "",
        "1",
        b"A",
        "i",
        repr(FUTURE_MS),
        "3",
        b"one",
        "",
        "",
        "1",
        b"B",
        "",
        "",
        "9",
        b"C",
        "",
        "",
        "0",
        b"D",
    ]
    for _ in range(2):
        arrive(store, rows=rows)
    found = [store.client.lrange(key, 0, -1) for key in (first, second, last)]
    assert found == [[b"D"], [b"B", b"A", b"first"], [b"C"]]
    assert store.queues.size("new") == 1
    assert arrive(store, "m2", ["", "", "0", b"E"]) != "repeated"


@pytest.mark.parametrize("place", range(6))
def test_a_key_of_the_wrong_type_is_refused_by_name(store: DelayStore, place: int) -> None:
    """Whichever key is somebody else's, it is named, and nothing changes."""
    key = [*store.keys.stored("new", store.backup), store.keys.arrived("new", "m1"), "new"][place]
    refuses_a_key_of_the_wrong_type(store, key, lambda: arrive(store))
