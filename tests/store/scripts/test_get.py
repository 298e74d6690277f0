"""``get.lua``: finds waiting messages by their ids."""

from collections.abc import Callable
from typing import Any

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import MAX_DUPLICATES
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, kept_ms, lose_body, lose_index, waiting


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
