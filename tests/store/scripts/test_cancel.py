"""``cancel.lua``: removes waiting messages by their ids."""

from collections.abc import Callable
from typing import Any

import pytest

from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import MAX_DUPLICATES
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    ORDER,
    PAST_MS,
    Contents,
    Ear,
    contents,
    duplicate_id,
    in_form,
    look,
    lose_body,
    lose_index,
    odd,
    popped,
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


def test_only_the_first_of_two_cancels_gets_it(store: DelayStore) -> None:
    """A message is returned to one cancel, also when both are in one call; the second finds nothing."""
    store.delivery.offer("q", waiting("i"), waiting("j"))
    assert len(store.lookup.cancel(["q"], ["i"])["i"]) == 1
    assert store.lookup.cancel(["q"], ["i"]) == {}
    assert len(store.lookup.cancel(["q"], ["j", "j"])["j"]) == 1


def test_a_marked_message_is_removed_with_its_mark(store: DelayStore) -> None:
    """Messages with a priority or with a due time that another one has are found and removed too."""
    store.delivery.offer("q", waiting("i"), waiting("j"), waiting("k", priority=9))
    assert store.lookup.cancel(["q"], ["j", "k"]).keys() == {"j", "k"}
    assert look(store)[b"waiting in q"] == [("i", FUTURE_MS, 0, b"body of i")]
    left = contents(store.client)
    assert [len(left[key.encode()]) for key in store.keys.stored("q", store.layout)[:2]] == [1, 1]


def test_all_messages_of_an_id_are_cancelled(store: DelayStore) -> None:
    """By a task id all messages that have it are removed; by the id that the store gave it, one alone."""
    for cancelled, left in (("i", 0), (duplicate_id("i", "two"), 2)):
        store.delivery.offer("q", *(waiting("i", body=body) for body in ("one", "two", "three")))
        assert len(store.lookup.cancel(["q"], [cancelled])[cancelled]) == 3 - left
        assert len(store.lookup.get(["q"], ["i"]).get("i", [])) == store.queues.size("q") == left
        assert len(contents(store.client).get(in_form(store, BODIES).encode(), [])) == left
    store.lookup.cancel(["q"], ["i"])
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES, DUPLICATES)))


def test_a_cancelled_id_is_free_again(store: DelayStore) -> None:
    """The same message offered after its cancellation is a new one."""
    store.delivery.offer("q", waiting("i"))
    store.lookup.cancel(["q"], ["i"])
    assert store.delivery.offer("q", waiting("i")) == ("first", 1, 0, 0)


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


def test_any_id(store: DelayStore) -> None:
    """A message of any id is removed by it, with the others of that id and no other message, and leaves no trace."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.delivery.offer("q", waiting("other"))
        before = contents(store.client)
        store.delivery.offer("q", odd(identity, "one", FUTURE_MS + 1), odd(identity, "two", FUTURE_MS + 2))
        assert [message.body for message in store.lookup.cancel(["q"], [identity])[identity]] == [b"one", b"two"]
        assert counts_apart(store, contents(store.client)) == counts_apart(store, before)


def test_an_id_that_looks_like_that_of_a_duplicate_is_none(store: DelayStore) -> None:
    """A cancel of an id leaves a task alone whose own id is that one with the ending of a duplicate."""
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("i~0123456789abcdef", PAST_MS))
    store.lookup.cancel(["q"], ["i"])
    store.delivery.transfer("q")
    assert popped(store.client, "q") == [b"body of i~0123456789abcdef"]


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


@pytest.mark.parametrize("key", [DUE, BODIES, DUPLICATES])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and nothing is removed."""
    store.delivery.offer("q", waiting("i"), waiting("i", body="two"))
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.lookup.cancel(["q"], ["i"]))


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
        stepped=store.keys.stored("q", store.layout),
    )
    assert found.keys() == {identity}
    assert store.queues.size("q") == 1
