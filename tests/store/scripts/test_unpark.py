"""``unpark.lua``: puts messages of the sub-queues of a queue back into its lists."""

import json

import pytest

from celery_ext.limits import Limit, LimitStore
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import fetch, lives
from tests.support.store.keyspace import contents, popped, refuses_a_key_of_the_wrong_type
from tests.support.store.limited import asked, declare, keyed, numbers, push

A, B = "account:a", "account:b"


def prepare(store: DelayStore, count: int = 4) -> LimitStore:
    """Lets messages of two keys wait behind one each in hand, and some of a lower priority."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(count) for key in (A, B)))
    push(store, keyed(A, "low"), step=3)
    assert len(fetch(store)) == 2
    return store.part(LimitStore)


def test_all_go_back_in_their_order(store: DelayStore) -> None:
    """Each message is in the list of its priority, those next that wait for longest; places stay taken."""
    part = prepare(store)
    assert part.unpark("q") == 7
    assert numbers(store) == {A: (0, 1), B: (0, 1)}
    assert [json.loads(each)["body"] for each in popped(store.client, "q")] == ["a1", "b1", "a2", "b2", "a3", "b3"]
    [low] = popped(store.client, store.keys.ready("q", (0, 3, 6, 9))[3])
    assert low == keyed(A, "low").encode()


def test_any_number_goes_back(store: DelayStore) -> None:
    """However many messages a key has, all go back; with a number, about so many."""
    part = prepare(store, 70)
    some = part.unpark("q", 50)
    assert 50 <= some < 100
    assert store.client.llen("q") == some
    assert part.unpark("q") == 139 - some
    assert numbers(store) == {A: (0, 1), B: (0, 1)}


def test_a_paused_key_keeps_its_messages(store: DelayStore) -> None:
    """What people have paused is not run by consumers that know no limits."""
    part = prepare(store)
    part.override(A, Limit(running=0), ["q"])
    assert part.unpark("q") == 3
    assert numbers(store) == {A: (4, 1), B: (0, 1)}


def test_it_is_sorted_again_when_a_consumer_comes(store: DelayStore) -> None:
    """A consumer that knows limits takes what has gone back by the same limits."""
    part = prepare(store)
    part.unpark("q")
    assert asked(store, first=3)[0] == []
    assert numbers(store) == {A: (4, 1), B: (3, 1)}


@pytest.mark.parametrize("key", ["parked", "parked_keys"])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """The error names it, and nothing changes."""
    part = prepare(store)
    refuses_a_key_of_the_wrong_type(store, getattr(store.keys, key)("q"), lambda: part.unpark("q"))


def test_a_list_of_the_wrong_type_is_named(store: DelayStore) -> None:
    """No message leaves its sub-queue."""
    part = prepare(store)
    refuses_a_key_of_the_wrong_type(store, "q", lambda: part.unpark("q"))


def test_a_queue_without_keys_is_left_alone(store: DelayStore) -> None:
    """Nothing is written for a queue in which nothing is sorted."""
    assert store.part(LimitStore).unpark("q") == 0
    assert contents(store.client) == {}
