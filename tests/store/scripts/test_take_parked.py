"""``take_parked.lua``: takes messages out of the sub-queues of a queue."""

import pytest

from celery_ext.limits import LimitStore
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import fetch, lives
from tests.support.store.keyspace import contents, refuses_a_key_of_the_wrong_type
from tests.support.store.limited import asked, declare, keyed, look, numbers, push, sort_all

A, B = "account:a", "account:b"


def prepare(store: DelayStore) -> LimitStore:
    """Lets messages of two keys wait, and one without a key."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(3) for key in (A, B)))
    assert len(fetch(store)) == 2
    push(store, keyed("", "-"))
    assert asked(store, 0)[0] == []
    return store.part(LimitStore)


def test_a_message_is_taken_once(store: DelayStore) -> None:
    """It is gone, and counts no more; who takes it again finds nothing."""
    part = prepare(store)
    members = [each.member for each in part.parked("q") if each.key == A]
    assert part.take_parked("q", [members[1], b"account:a\x000unknown", b"unknown"]) == [True, False, False]
    assert part.take_parked("q", members) == [True, False]
    assert numbers(store) == {A: (0, 1), B: (2, 1), "": (1, 0)}
    assert store.fetching.ready(["q"]) == [3]


def test_the_last_message_of_a_key_takes_its_turn_along(store: DelayStore) -> None:
    """A key without a message is not known any more, and has no turn."""
    part = prepare(store)
    [one] = [each for each in part.parked("q") if not each.key]
    assert part.take_parked("q", [one.member]) == [True]
    assert look(store).turns == []
    assert numbers(store).keys() == {A, B}


def test_any_number_is_taken_page_by_page(store: DelayStore) -> None:
    """All messages of a queue can be taken; they are those that were there."""
    part = prepare(store)
    push(store, *(keyed(f"account:{number}", number) for number in range(450)))
    sort_all(store)
    found = list(part.parked("q"))
    assert len(found) == 455
    assert {each.key for each in found} == {A, B, "", *(f"account:{number}" for number in range(450))}
    assert all(part.take_parked("q", [each.member for each in found]))
    assert numbers(store) == {A: (0, 1), B: (0, 1)}
    assert part.take_parked("q", []) == []


@pytest.mark.parametrize("key", ["parked", "parked_keys"])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """The error names it, and nothing is taken."""
    part = prepare(store)
    members = [each.member for each in part.parked("q")]
    refuses_a_key_of_the_wrong_type(store, getattr(store.keys, key)("q"), lambda: part.take_parked("q", members))


def test_a_queue_without_keys_is_left_alone(store: DelayStore) -> None:
    """Nothing is written for a queue in which nothing is sorted."""
    assert store.part(LimitStore).take_parked("q", [b"unknown"]) == [False]
    assert contents(store.client) == {}
