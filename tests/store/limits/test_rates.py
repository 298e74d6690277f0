"""How many messages of a key go in a time: the rate of a limit, and rests."""

import time
from collections.abc import Iterator

import pytest

from celery_ext.limits import Limit, LimitStore
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import fetch, lives
from tests.support.store.keyspace import clock_ms
from tests.support.store.limited import asked, bodies, declare, keyed, look, numbers, push

A, B = "api:a", "api:b"
#: For how long a test watches, in s.
WATCH_S = 0.5

pytestmark = pytest.mark.parametrize("layout", ["hash"], indirect=True)  # the scripts are the same in both


def taken(store: DelayStore, seconds: float = WATCH_S, first: int = 1) -> Iterator[tuple[float, str]]:
    """Takes messages when they may go, for some time. Yields each with when it came at the latest, in s."""
    begun_ms = clock_ms(store.client)
    while (at_s := (clock_ms(store.client) - begun_ms) / 1000) < seconds:
        found, again_s = asked(store, first=first)
        late_s = (clock_ms(store.client) - begun_ms) / 1000
        first += len(found)
        yield from ((late_s, each) for each in found)
        if not found:
            time.sleep(min(again_s, max(seconds - at_s, 0)))


def test_no_more_go_than_burst_and_rate_allow(store: DelayStore) -> None:
    """At any time at most the burst and the rate times the time have gone, and nearly as many have."""
    lives(store)
    declare(store, api={"rate": [50, 5]})
    push(store, *(keyed(A, number) for number in range(100)))
    found = list(taken(store))
    assert [int(body) for _, body in found] == [*range(len(found))]
    assert [number for number, (at_s, _) in enumerate(found, 1) if number > 5 + 50 * at_s] == []
    assert len(found) >= 5 + 50 * WATCH_S * 0.8
    assert numbers(store)[A] == (100 - len(found), len(found))


def test_each_key_has_its_own_rate(store: DelayStore) -> None:
    """The rate holds for each key, and a key that waits for its tokens holds up no other."""
    lives(store)
    declare(store, api={"rate": [1, 2]})
    push(store, *(keyed(key, key[-1]) for key in (A, B, "tenant:t") for _ in range(4)))
    found, again_s = asked(store, 20)
    assert "".join(sorted(found)) == "aabbtttt"
    assert 0.5 < again_s <= 1.0
    assert look(store).rests == {A, B}


def test_a_message_that_the_rate_holds_back_has_no_place(store: DelayStore) -> None:
    """The bound and the rate are taken in one step or not at all; and a place is no token."""
    lives(store)
    declare(store, api={"running": 2, "rate": [1000, 1]})
    push(store, *(keyed(A, number) for number in range(6)))
    assert asked(store)[0] == ["0"]
    assert numbers(store) == {A: (5, 1)}
    found = dict.fromkeys(body for _, body in taken(store, 0.1, first=2))
    assert [*found] == ["1"]  # then both places are taken
    assert numbers(store) == {A: (4, 2)}


def test_tokens_that_a_key_does_not_use_are_those_of_its_burst(store: DelayStore) -> None:
    """After a pause as many may go at once as the burst says, and no more."""
    lives(store)
    declare(store, api={"rate": [100, 3]})
    push(store, *(keyed(A, number) for number in range(3)))
    assert len(asked(store)[0]) == 3
    time.sleep(0.1)
    push(store, *(keyed(A, number) for number in range(10)))
    assert len(asked(store, first=4)[0]) == 3


def test_a_key_rests_and_its_message_is_next(store: DelayStore) -> None:
    """Until its rest is over nothing of the key goes, of any priority; then the message that was given back."""
    lives(store)
    declare(store, api={"running": 2})
    push(store, *(keyed(A, number) for number in range(3)))
    [first, _] = fetch(store, 2)
    store.part(LimitStore).back_off("q", A, 0.1, first.tag, first.body.decode(), 0, is_early=False)
    push(store, keyed(A, "later"), keyed(B, "b"))
    found, again_s = asked(store, first=3)
    assert found == ["b"]
    assert 0 < again_s <= 0.1
    assert [state.rests_s > 0 for state in store.part(LimitStore).states("q", [A, B])] == [True, False]
    assert [body for _, body in taken(store, 0.2, first=4)] == ["0"]
    assert look(store).rests == set()


def test_a_changed_rate_holds_at_once(store: DelayStore) -> None:
    """A limit that loses its rate, or gets another one, does so for keys that are known already."""
    lives(store)
    declare(store, api={"rate": [1, 1]})
    push(store, *(keyed(A, number) for number in range(20)))
    assert asked(store)[0] == ["0"]
    store.part(LimitStore).override(A, Limit(rate=1000, burst=4), ["q"])
    found = bodies(fetch(store, 20, first=2))
    while not found:  # it rests as long as a token takes by the old rate
        found = bodies(fetch(store, 20, first=2))
    assert len(found) == 4
