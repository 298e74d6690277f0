"""``cancel.lua``: removes waiting messages by their ids."""

from collections.abc import Callable
from typing import Any

import pytest

from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import MAX_DUPLICATES
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import (
    FUTURE_MS,
    ORDER,
    PAST_MS,
    Contents,
    Ear,
    contents,
    in_form,
    lose_body,
    lose_index,
    refuses_a_key_of_the_wrong_type,
    waiting,
)


def counts_apart(store: DelayStore, found: Contents) -> Contents:
    """Returns what is kept but for the notes on the whole queue, such as the count of messages marked."""
    return {key: value for key, value in found.items() if key != in_form(store, ORDER).encode()}


def test_a_cancelled_message_leaves_no_trace(store: DelayStore, ear: Ear) -> None:
    """What is cancelled is returned whole and gone from every key, and nothing else is touched."""
    store.delivery.offer("q", waiting("kept"))
    store.delivery.offer("other", waiting("i"))
    before = contents(store.client)
    store.delivery.offer("q", waiting("i", FUTURE_MS + 1), waiting("past", PAST_MS))
    ear.heard()
    assert store.lookup.cancel(["q"], ["i", "unknown", "past"]) == {
        "i": [Waiting("q", "i", FUTURE_MS + 1, 0, b"body of i", store.layout)],
        "past": [Waiting("q", "past", PAST_MS, 0, b"body of past", store.layout)],
    }
    after = contents(store.client)
    assert counts_apart(store, after) == counts_apart(store, before)
    assert ear.heard() == []
    assert store.delivery.transfer("q").moved == 0


def test_more_than_a_call_removes_takes_several(store: DelayStore) -> None:
    """Of an id with more duplicates than a call removes, the rest is removed by the next calls."""
    store.delivery.offer("q", *(waiting("i", body=str(number)) for number in range(2 * MAX_DUPLICATES + 20)))
    counts = [len(store.lookup.cancel(["q"], ["i"]).get("i", [])) for _ in range(4)]
    # In Redisson's layout the next one takes the place of the first that has left.
    assert counts == [
        MAX_DUPLICATES + 1,
        *((MAX_DUPLICATES, 19) if store.layout == "hash" else (MAX_DUPLICATES + 1, 18)),
        0,
    ]
    assert store.queues.size("q") == 0


@pytest.mark.parametrize("lose", [lose_index, lose_body])
def test_half_a_message_is_left_to_repair(store: DelayStore, lose: Callable[[DelayStore, str], Any]) -> None:
    """What is left of a message that lost its body or its index entry is not said to be cancelled, and stays."""
    store.delivery.offer("q", waiting("other"), waiting("i"))
    lose(store, "i")
    before = contents(store.client)
    assert store.lookup.cancel(["q"], ["i"]) == {}
    assert contents(store.client) == before


def test_a_refusal_is_taken_back_for_what_is_no_step(store: DelayStore) -> None:
    """With its last message an id is free for a chain again, unless one was a step, of which a copy may run."""
    store.delivery.offer("q", waiting("task"), waiting("both"))
    for each in ("step", "both"):
        store.chains.step("q", "chain", waiting(each, body=f"{CHAIN_ID} of chain"))
    store.chains.cancel_chains(["task", "step", "both", "unknown"])
    store.lookup.cancel(["q"], ["task", "step", "both", "unknown"])
    assert set(store.client.zrange("{delayq}:cancelled", 0, -1)) == {b"step", b"both", b"unknown"}
    assert store.client.zrange("{delayq}:chains", 0, -1) == [b""]


@pytest.mark.parametrize(("key", "identity"), [("{delayq}:cancelled", "task"), ("{delayq}:chains", "step")])
def test_a_note_of_chains_of_the_wrong_type_is_named(store: DelayStore, key: str, identity: str) -> None:
    """The error names the key ; the message has left before, and is returned."""
    store.delivery.offer("q", waiting("task"))
    store.chains.step("q", "chain", waiting("step", body=f"{CHAIN_ID} of chain"))
    found: dict[str, list[Waiting]] = {}
    refuses_a_key_of_the_wrong_type(
        store,
        key,
        lambda: store.lookup.cancel(["q"], [identity], found),
        stepped=LAYOUT_OF[store.layout].keys(store.keys, "q"),
    )
    assert found.keys() == {identity}
    assert store.queues.size("q") == 1
