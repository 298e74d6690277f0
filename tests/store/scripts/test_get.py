"""``get.lua``: finds waiting messages by their ids."""

from collections.abc import Callable
from typing import Any

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import MAX_DUPLICATES
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    PAST_MS,
    contents,
    duplicate_id,
    in_form,
    kept_ms,
    lose_body,
    lose_index,
    odd,
    refuses_a_key_of_the_wrong_type,
    waiting,
)


def ids(found: dict[str, list[Waiting]]) -> dict[str, list[str]]:
    return {identity: [message.id for message in messages] for identity, messages in found.items()}


def test_a_message_is_found_with_all_that_the_store_knows(store: DelayStore) -> None:
    """Messages are found by id, due or not, marked or not, ids that do not wait are left out, and no key changes."""
    store.delivery.offer(
        "q", waiting("i", FUTURE_MS + 0.5), waiting("j", priority=6), waiting("k"), waiting("past", PAST_MS)
    )
    before = contents(store.client)
    assert store.lookup.get(["q"], ["unknown", "k", "j", "i", "past", ""]) == {
        "i": [Waiting("q", "i", kept_ms(store, FUTURE_MS + 0.5), 0, b"body of i", store.layout)],
        "j": [Waiting("q", "j", FUTURE_MS, 6, b"body of j", store.layout)],
        "k": [Waiting("q", "k", FUTURE_MS, 0, b"body of k", store.layout)],
        "past": [Waiting("q", "past", PAST_MS, 0, b"body of past", store.layout)],
    }
    assert contents(store.client) == before


def test_all_messages_of_an_id_are_found_the_next_due_first(store: DelayStore) -> None:
    """Of several messages with one id all are found by it, in the order of their due times."""
    one, two = waiting("i", FUTURE_MS + 1, "one"), waiting("i", FUTURE_MS + 2, "two", priority=9)
    store.delivery.offer("q", one, two, waiting("i", body="three"))
    assert store.lookup.get(["q"], ["i"]) == {
        "i": [
            Waiting("q", duplicate_id("i", "three"), FUTURE_MS, 0, b"three", store.layout),
            Waiting("q", "i", FUTURE_MS + 1, 0, b"one", store.layout),
            Waiting("q", duplicate_id("i", "two", 9), FUTURE_MS + 2, 9, b"two", store.layout),
        ]
    }


def test_messages_of_an_id_are_found_when_the_first_has_left(store: DelayStore) -> None:
    """The other messages of an id are found by it after the one stored under it was transferred, and none at last."""
    store.delivery.offer("q", waiting("i", PAST_MS, "one"), waiting("i", body="two"), waiting("i", PAST_MS, "three"))
    store.delivery.transfer("q")
    left = ids(store.lookup.get(["q"], ["i"]))
    assert left == {
        "i": [duplicate_id("i", "two") if store.layout == "hash" else "i"]
    }  # which takes the first one's place
    assert ids(store.lookup.get(["q"], [duplicate_id("i", "two")])) == {
        duplicate_id("i", "two"): [duplicate_id("i", "two")]
    }
    store.lookup.cancel(["q"], ["i"])
    assert store.lookup.get(["q"], ["i"]) == {}
    assert not store.client.exists(in_form(store, DUPLICATES))


def test_a_message_is_found_by_the_id_under_which_it_is_stored(store: DelayStore) -> None:
    """One of several messages with one id is found alone by the id that the store gave it."""
    store.delivery.offer("q", waiting("i", body="one"), waiting("i", body="two"))
    stored = duplicate_id("i", "two")
    assert store.lookup.get(["q"], [stored]) == {stored: [Waiting("q", stored, FUTURE_MS, 0, b"two", store.layout)]}


def test_any_id(store: DelayStore) -> None:
    """A message of any id and another of the same id are found by it, and neither by an id that is like it."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.delivery.offer("q", waiting("other"), odd(identity, "one"))
        assert ids(store.lookup.get(["q"], [identity])) == {identity: [identity]}
        store.delivery.offer("q", odd(identity, "two"))
        assert ids(store.lookup.get(["q"], [identity, "other"])) == {
            identity: [identity, duplicate_id(identity, "two")],
            "other": ["other"],
        }
        like = (f"{identity}~", f"{identity}~0123456789abcdef", identity[:-17], identity[1:], f"{identity}\0", "\x7f")
        for near in like:
            if near != identity:
                assert store.lookup.get(["q"], [near]) == {}, near


def test_an_id_that_looks_like_that_of_a_duplicate_is_none(store: DelayStore) -> None:
    """A task id that ends like the id of a duplicate, and that task.s duplicates, are not found by its beginning."""
    alike = "i~0123456789abcdef"
    store.delivery.offer("q", waiting(alike, body="one"), waiting(alike, body="two"))
    assert store.lookup.get(["q"], ["i"]) == {}
    store.delivery.offer("q", waiting("i"))
    assert ids(store.lookup.get(["q"], ["i"])) == {"i": ["i"]}
    assert ids(store.lookup.get(["q"], [alike])) == {alike: [alike, duplicate_id(alike, "two")]}


def test_the_number_found_for_an_id_is_bounded(store: DelayStore) -> None:
    """Of an id with more duplicates than a call finds, the bound of them is found, and the first."""
    store.delivery.offer("q", *(waiting("i", body=str(number)) for number in range(MAX_DUPLICATES + 20)))
    found = store.lookup.get(["q"], ["i"])["i"]
    assert len(set(found)) == len(found) == MAX_DUPLICATES + 1
    assert "i" in {message.id for message in found}


@pytest.mark.parametrize("lose", [lose_index, lose_body])
def test_half_a_message_is_none(store: DelayStore, lose: Callable[[DelayStore, str], Any]) -> None:
    """What is left of a message that lost its body or its index entry is not found, and hides no other."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    lose(store, "i")
    store.delivery.offer("q", waiting("i", body="two"))
    found = store.lookup.get(["q"], ["i", "j"])
    assert {each: [message.body for message in messages] for each, messages in found.items()} == {
        "i": [b"two"],
        "j": [b"body of j"],
    }


def test_an_id_may_be_asked_for_twice(store: DelayStore) -> None:
    """Hundreds of ids go into one call, and one that is among them twice is answered as often."""
    store.delivery.offer("q", *(waiting(str(number)) for number in range(500)))
    asked = [str(number) for number in range(500)]
    assert ids(store.lookup.get(["q"], asked)) == {each: [each] for each in asked}
    assert ids(store.lookup.get(["q"], ["1", "1"])) == {"1": ["1", "1"]}


@pytest.mark.parametrize("key", [DUE, BODIES, DUPLICATES])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    store.delivery.offer("q", waiting("i"), waiting("i", body="two"))
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.lookup.get(["q"], ["i"]))
