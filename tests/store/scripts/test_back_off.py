"""``back_off.lua``: lets a key rest, and gives the message of its task back as the next one of the key."""

import pytest

from celery_ext.limits import LimitStore
from celery_ext.limits.keys import LimitKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Fetched
from tests.support.store.consuming import INDEX, UNACKED, fetch, lives
from tests.support.store.keyspace import clock_ms, contents, refuses_a_key_of_the_wrong_type
from tests.support.store.limited import asked, declare, keyed, look, numbers, push

A = "account:a"


def prepare(store: DelayStore, step: int = 0) -> list[Fetched]:
    """Lets a consumer hold two messages of a key, and two others wait."""
    lives(store)
    declare(store, account={"running": 2})
    push(store, *(keyed(A, number) for number in range(4)), step=step)
    return fetch(store)


def back_off(store: DelayStore, held: Fetched, rest_s: float = 60, *, step: int = 0, is_early: bool = False) -> bool:
    text = held.body.decode()
    return store.part(LimitStore).back_off("q", A, rest_s, held.tag, text, step, is_early=is_early)


def over(store: DelayStore) -> None:
    """Lets the rest be over."""
    store.client.zadd(LimitKeys(store.keys).rests("q"), {A: 1})


@pytest.mark.parametrize("is_early", [False, True])
def test_the_message_is_the_next_of_its_key(store: DelayStore, is_early: bool) -> None:
    """It is held no more and has no place; nothing of the key goes before the rest is over, and then it goes first."""
    first, second = prepare(store)
    if is_early:
        store.fetching.ack([first.tag], "q", going_on=1)
    before_ms = clock_ms(store.client)
    assert back_off(store, first, is_early=is_early)
    assert store.client.hkeys(UNACKED) == [second.tag.encode()]
    assert store.client.zrange(INDEX, 0, -1) == [second.tag.encode()]
    assert numbers(store) == {A: (3, 1)}
    until_ms = store.client.zscore(LimitKeys(store.keys).rests("q"), A)
    assert before_ms + 59_999 <= until_ms <= clock_ms(store.client) + 60_000
    assert asked(store, first=3)[0] == []
    assert store.fetching.limited(["q"]) == [3]
    over(store)
    assert asked(store, first=3)[0] == ["0"]


def test_a_longer_rest_stays(store: DelayStore) -> None:
    """Of several tasks that ask for a rest, the longest one holds."""
    first, second = prepare(store)
    assert back_off(store, first, 60)
    assert back_off(store, second, 1)
    [state] = store.part(LimitStore).states("q", [A])
    assert state.rests_s > 50
    over(store)
    assert asked(store, first=3)[0] == ["1", "0"]


def test_what_the_consumer_holds_no_more_stays(store: DelayStore) -> None:
    """A message that has gone back meanwhile is not given back again, and its key does not rest."""
    first, _ = prepare(store)
    store.fetching.ack([first.tag], "q")
    before = contents(store.client)
    assert not back_off(store, first)
    assert contents(store.client) == before


def test_a_message_without_a_place_goes_to_its_list(store: DelayStore) -> None:
    """Where the place was given up, such as after a change by hand, the message is not lost."""
    first, _ = prepare(store, step=2)
    store.client.hdel(store.keys.places("q"), first.tag)
    assert back_off(store, first, step=2)
    assert store.client.lrange(store.keys.ready("q", (0, 3, 6, 9))[2], 0, -1) == [first.body]


def test_the_priority_stays(store: DelayStore) -> None:
    """A message goes back into the step from which it came, and is the next one there."""
    first, _ = prepare(store, step=2)
    push(store, keyed(A, "before"))
    assert asked(store, 0) == ([], None)
    assert back_off(store, first, step=2)
    over(store)
    assert asked(store, 1, first=3)[0] == ["before"]
    assert look(store).waiting[A][0] == first.body


@pytest.mark.parametrize("key", ["unacked", "unacked_index", "places", "parked", "parked_keys"])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """The error names it, and the message stays in hand."""
    first, _ = prepare(store)
    refuses_a_key_of_the_wrong_type(store, getattr(store.keys, key)("q"), lambda: back_off(store, first))
