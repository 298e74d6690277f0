"""``refuse.lua``: notes ids whose delay chains are to take no further step."""

from itertools import pairwise

import pytest

from kombu_delayq.store import DelayStore
from tests.lua.conftest import MakeStore
from tests.lua.keyspace import ODD_IDS, clock_ms, contents, refuses_a_key_of_the_wrong_type, waiting
from tests.waiting import until

CANCELLED = "delayq:cancelled"


def test_ids_are_noted_for_as_long_as_the_option_says(make_store: MakeStore) -> None:
    """Each id is noted with the time until when, nothing else is touched, and the note ends by itself."""
    store = make_store(cancelled_ttl=60)
    store.offer("q", waiting("i"))
    before, start_ms = contents(store.client), clock_ms(store.client)
    assert store.refuse(["i", "j"]) == 2
    end_ms = clock_ms(store.client)
    after = contents(store.client)
    noted = dict(after.pop(CANCELLED.encode()))
    assert noted.keys() == {b"i", b"j"}
    assert all(start_ms + 60_000 <= until_ms <= end_ms + 60_000 for until_ms in noted.values())
    assert after == before
    assert 0 < store.client.pttl(CANCELLED) <= 60_000


def test_an_id_that_is_noted_already_is_noted_anew(store: DelayStore) -> None:
    """Only new ids are counted; the others are noted from now on for the full time."""
    assert store.refuse(["i"]) == 1
    first_ms = store.client.zscore(CANCELLED, "i")
    assert store.refuse(["j", "i", "j"]) == 1
    assert store.client.zscore(CANCELLED, "i") > first_ms
    assert store.client.zcard(CANCELLED) == 2


def test_a_shorter_note_shortens_no_longer_one(make_store: MakeStore) -> None:
    """A process whose option is shorter lets neither the same id nor those of others be forgotten before their time."""
    longer, shorter = make_store(cancelled_ttl=1000), make_store(cancelled_ttl=1)
    longer.refuse(["i", "j"])
    before = contents(longer.client)
    assert shorter.refuse(["i"]) == 0
    assert contents(longer.client) == before
    assert shorter.refuse(["k"]) == 1
    assert 990_000 < longer.client.pttl(CANCELLED) <= 1_000_000


def test_what_was_noted_long_ago_is_forgotten_bit_by_bit(store: DelayStore) -> None:
    """Each call forgets more ids than it adds, and only those whose time is over."""
    now_ms = clock_ms(store.client)
    store.client.zadd(CANCELLED, {f"old{n}": now_ms - n for n in range(1000)})
    store.client.zadd(CANCELLED, {"current": now_ms + 60_000})
    sizes = []
    while store.client.zcount(CANCELLED, "-inf", now_ms):
        store.refuse([f"new{len(sizes)}"])
        sizes.append(store.client.zcard(CANCELLED))
        assert len(sizes) <= 1000
    assert all(after < before for before, after in pairwise(sizes))
    assert store.client.zcard(CANCELLED) == len(sizes) + 1
    assert store.client.zscore(CANCELLED, "current") == now_ms + 60_000


def test_the_notes_are_gone_when_none_is_needed(make_store: MakeStore) -> None:
    """The key goes with the last note."""
    store = make_store(cancelled_ttl=1)
    store.refuse(["i"])
    until(lambda: not store.client.exists(CANCELLED), 10)


def test_nothing_to_note_changes_nothing(store: DelayStore) -> None:
    """A call without ids makes no key."""
    assert store.refuse([]) == 0
    assert contents(store.client) == {}


@pytest.mark.parametrize("identity", ODD_IDS)
def test_any_id_is_noted_and_taken_back(store: DelayStore, identity: str) -> None:
    """Any id can be noted; taken back, it leaves the others."""
    assert store.refuse([identity, "other"]) == 2
    assert store.accept([identity, "unknown"]) == 1
    assert store.accept([identity]) == 0
    assert store.client.zrange(CANCELLED, 0, -1) == [b"other"]


def test_hundreds_of_ids_in_a_call(store: DelayStore) -> None:
    """A few hundred ids are noted and taken back in one call each."""
    ids = [str(n) for n in range(500)]
    assert (store.refuse(ids), store.refuse(ids), store.accept(ids)) == (500, 0, 500)
    assert contents(store.client) == {}


def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore) -> None:
    """Where somebody else's key is in the way, the error names it."""
    refuses_a_key_of_the_wrong_type(store, CANCELLED, lambda: store.refuse(["i"]))
