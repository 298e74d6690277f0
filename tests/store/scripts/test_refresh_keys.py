"""``refresh_keys.lua``: gives keys their turns by the limits that hold now, and corrects what is noted of them."""

import pytest

from celery_ext.limits import LimitStore
from celery_ext.limits.keys import LimitKeys
from kombu_delayq.store import PARKED, DelayStore
from tests.support.conditions import until
from tests.support.store.consuming import OTHER, fetch, lives
from tests.support.store.keyspace import Ear, contents, refuses_a_key_of_the_wrong_type
from tests.support.store.limited import asked, declare, keyed, look, numbers, push, sort_all

A, B = "account:a", "account:b"


def prepare(store: DelayStore) -> LimitStore:
    """Lets messages of two keys wait behind one each in hand."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(key, f"{key[-1]}{number}") for number in range(4) for key in (A, B)))
    assert len(fetch(store)) == 2
    return store.part(LimitStore)


def test_keys_get_their_turns_by_new_limits(store: DelayStore) -> None:
    """After a change of a limit all keys go by it, or only those that the caller names."""
    part = prepare(store)
    declare(store, account={"running": 2})
    assert part.refresh("q", [B, "unknown"]) == 0
    assert look(store).turns == [B]
    assert part.refresh("q") == 0
    assert {*look(store).turns} == {A, B}
    declare(store, account={"running": 1})
    assert part.refresh("q") == 0
    assert look(store).turns == []


def test_what_is_noted_wrongly_is_corrected(store: DelayStore) -> None:
    """Numbers of waiting and running tasks are counted again; the reply says of how many keys they were wrong."""
    part = prepare(store)
    known = store.keys.parked_keys("q")
    store.client.hset(known, A, "1 7 1 5 0")
    store.client.hset(known, B, "9 0 1 5 0")
    assert part.refresh("q") == 2
    assert {each.key: (each.waiting, each.running) for each in part.keys("q")} == {A: (3, 1), B: (3, 1)}
    assert part.refresh("q") == 0


def test_any_number_of_keys_is_looked_at_page_by_page(store: DelayStore) -> None:
    """A call looks at some hundred keys, and says where the next one goes on."""
    lives(store)
    declare(store, account={"running": 0})
    for _ in range(2):
        push(store, *(keyed(f"account:{number}") for number in range(600)))
        assert asked(store)[0] == []
        sort_all(store)
    declare(store, account={"running": 1})
    part = store.part(LimitStore)
    cursor, _ = part.refresh_keys("q")
    assert cursor != "0"
    assert 0 < len(look(store).turns) < 600
    assert part.refresh("q") == 0
    assert len(look(store).turns) == 600


def test_rests_that_are_over_end(store: DelayStore) -> None:
    """A key whose rest is over has its turn again, and a consumer that waits is woken."""
    part = prepare(store)
    own = LimitKeys(store.keys)
    [held, _] = store.client.hkeys(store.keys.places("q"))
    store.part(LimitStore).back_off("q", A, 60, held.decode(), keyed(A, "again"), 0, is_early=True)
    lives(store, OTHER)
    assert asked(store, name=OTHER)[0] == []
    part.nudge(["q"])
    assert look(store).rests == {A}
    store.client.zadd(own.rests("q"), {A: 1})
    ear = Ear(store.client, store.keys.presence(OTHER))
    part.nudge(["q", "q"])
    assert ear.heard()
    ear.close()
    assert look(store).rests == set()
    assert look(store).turns == [A]


def test_keys_whose_tokens_are_full_again_are_forgotten(store: DelayStore) -> None:
    """A key with a rate, of which nothing waits or runs, is known until then, and not for ever."""
    declare(store, api={"rate": [1000, 1]})
    lives(store)
    push(store, *(keyed(f"api:{number}") for number in range(50)))
    held = fetch(store, 50)
    assert len(held) == 50
    store.fetching.ack([fetched.tag for fetched in held], "q")

    def are_gone() -> bool:
        store.part(LimitStore).nudge(["q"])
        return store.client.hkeys(store.keys.parked_keys("q")) == [PARKED]

    until(are_gone)


def test_a_queue_without_keys_is_left_alone(store: DelayStore) -> None:
    """Nothing is written for a queue in which nothing is sorted."""
    declare(store, account={"running": 1})
    before = contents(store.client)
    assert store.part(LimitStore).refresh("q") == 0
    store.part(LimitStore).nudge(["q"])
    assert contents(store.client) == before


@pytest.mark.parametrize("key", ["parked", "parked_keys", "base"])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """The error names it, and nothing changes."""
    part = prepare(store)
    name = store.keys.base("q") + ":turns" if key == "base" else getattr(store.keys, key)("q")
    refuses_a_key_of_the_wrong_type(store, name, lambda: part.refresh("q"))


def test_the_numbers_are_those_of_one_queue(store: DelayStore) -> None:
    """Places of another queue of the same slot group do not count."""
    part = prepare(store)
    store.client.hset(store.keys.places("q"), f"{OTHER}.1", f"elsewhere\x000{A}")
    assert part.refresh("q") == 0
    store.client.hdel(store.keys.places("q"), f"{OTHER}.1")
    assert numbers(store) == {A: (3, 1), B: (3, 1)}
