"""``cancel_chains.lua``: notes ids whose delay chains are to take no further step."""

from itertools import pairwise
from math import inf

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from kombu_delayq.store.chains import NOTES_WITHOUT_CHAINS, CancelledChains
from tests.support.conditions import until
from tests.support.store.cost import round_trips
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, clock_ms, contents, waiting

CANCELLED, CHAINS = "{delayq}:cancelled", "{delayq}:chains"


def noted(store: DelayStore) -> set[bytes]:
    return set(store.client.zrange(CANCELLED, 0, -1))


def test_ids_are_noted_for_as_long_as_the_option_says(make_store: MakeStore) -> None:
    """Each id is noted with the time until when, nothing else is touched, and the note ends by itself."""
    store = make_store(cancelled_ttl=60)
    store.delivery.offer("q", waiting("i"))
    before, start_ms = contents(store.client), clock_ms(store.client)
    assert store.chains.cancel_chains(["i", "j"]) == CancelledChains(["q"], set())
    end_ms = clock_ms(store.client)
    after = contents(store.client)
    notes = dict(after.pop(CANCELLED.encode()))
    assert notes.keys() == {b"i", b"j"}
    assert all(start_ms + 60_000 <= until_ms <= end_ms + 60_000 for until_ms in notes.values())
    assert after == before
    assert 0 < store.client.pttl(CANCELLED) <= 60_000


def test_a_refusal_costs_one_round_trip(store: DelayStore) -> None:
    """Ids are noted and the names of the queues read afterwards in one round trip, once the script is known."""
    for queue in "cab":
        store.delivery.offer(queue, waiting("i"))
    store.client.script_flush()
    assert store.chains.cancel_chains(["i"]).queues == ["a", "b", "c"]
    assert round_trips(store, lambda: store.chains.cancel_chains(["i"])) == 1


def test_an_id_that_is_noted_already_is_noted_anew(store: DelayStore) -> None:
    """Those that are noted are noted from now on for the full time."""
    store.chains.cancel_chains(["i"])
    first_ms = store.client.zscore(CANCELLED, "i")
    store.chains.cancel_chains(["j", "i", "j"])
    assert store.client.zscore(CANCELLED, "i") > first_ms
    assert noted(store) == {b"i", b"j"}


def test_a_shorter_note_shortens_no_longer_one(make_store: MakeStore) -> None:
    """A process whose option is shorter lets neither the same id nor those of others be forgotten before their time."""
    longer, shorter = make_store(cancelled_ttl=1000), make_store(cancelled_ttl=1)
    longer.chains.cancel_chains(["i", "j"])
    before = contents(longer.client)
    shorter.chains.cancel_chains(["i"])
    assert contents(longer.client) == before
    shorter.chains.cancel_chains(["k"])
    assert noted(longer) == {b"i", b"j", b"k"}
    assert 990_000 < longer.client.pttl(CANCELLED) <= 1_000_000


def test_what_was_noted_long_ago_is_forgotten_bit_by_bit(store: DelayStore) -> None:
    """Each call forgets more ids than it adds, and only those whose time is over."""
    now_ms = clock_ms(store.client)
    store.chains.use_chains()
    store.client.zadd(CANCELLED, {f"old{n}": now_ms - n for n in range(1000)})
    store.client.zadd(CANCELLED, {"current": now_ms + 60_000})
    sizes = []
    while store.client.zcount(CANCELLED, "-inf", now_ms):
        store.chains.cancel_chains([f"new{len(sizes)}"])
        sizes.append(store.client.zcard(CANCELLED))
        assert len(sizes) <= 1001
    assert all(after < before for before, after in pairwise(sizes))
    assert store.client.zcard(CANCELLED) == len(sizes) + 1
    assert store.client.zscore(CANCELLED, "current") == now_ms + 60_000


def test_where_nobody_uses_chains_only_the_latest_notes_are_kept(store: DelayStore) -> None:
    """However many ids are cancelled, a bounded number of notes is left, the latest; those of before go bit by bit."""
    store.client.zadd(CANCELLED, {f"of another release {n}": clock_ms(store.client) + 60_000 for n in range(3000)})
    sizes = []
    for first in range(0, 5000, 200):
        store.chains.cancel_chains([str(n) for n in range(first, first + 200)])
        sizes.append(store.client.zcard(CANCELLED))
    assert all(after < before for before, after in pairwise(sizes) if before > NOTES_WITHOUT_CHAINS)
    assert sizes[-1] == NOTES_WITHOUT_CHAINS
    assert noted(store) == {b"%d" % n for n in range(5000 - NOTES_WITHOUT_CHAINS, 5000)}


@pytest.mark.parametrize("told", ["by a publisher or a worker", "by who cancels", "by a step"])
def test_where_chains_are_in_use_every_note_is_kept(store: DelayStore, told: str) -> None:
    """Once anybody has told of chains, no note goes before its time."""
    if told == "by a publisher or a worker":
        store.chains.use_chains()
    elif told == "by a step":
        store.chains.step("q", "chain", waiting("step", body="of chain"))
    count = NOTES_WITHOUT_CHAINS * 2
    for first in range(0, count, 200):
        store.chains.cancel_chains([str(n) for n in range(first, first + 200)], in_use=told == "by who cancels")
    assert store.client.zcard(CANCELLED) == count
    assert store.client.ttl(CHAINS) == -1
    assert store.client.zscore(CHAINS, "") == inf


def test_it_tells_which_ids_are_those_of_chains(make_store: MakeStore) -> None:
    """A chain is known from its first step on, until the latest was due so long ago that it has ended."""
    store = make_store(cancelled_ttl=1000)
    now_ms = clock_ms(store.client)
    for identity, due_ms in (("waits", FUTURE_MS), ("runs", now_ms - 900_000), ("has ended", PAST_MS), ("", FUTURE_MS)):
        store.chains.step("q", "chain", waiting(identity, due_ms, "of chain"))
    store.delivery.offer("q", waiting("no chain"))
    ids = ["unknown", "runs", "has ended", "waits", "no chain", ""]
    # A chain without an id could not be told from the mark of those that are in use.
    assert store.chains.cancel_chains(ids).chains == {"runs", "waits"}


def test_the_notes_are_gone_when_none_is_needed(make_store: MakeStore) -> None:
    """The key goes with the last note."""
    store = make_store(cancelled_ttl=1)
    store.chains.cancel_chains(["i"])
    until(lambda: not store.client.exists(CANCELLED))


def test_nothing_to_note_changes_nothing(store: DelayStore) -> None:
    """A call without ids makes no key."""
    assert store.chains.cancel_chains([]) == CancelledChains([], set())
    assert contents(store.client) == {}


def test_thousands_of_ids_in_a_call(store: DelayStore) -> None:
    """Any number of ids, also more than Lua can unpack, is noted and taken back in one call each."""
    ids = [str(n) for n in range(8100)]
    store.chains.cancel_chains(ids, in_use=True)
    assert len(noted(store)) == 8100
    assert store.chains.accept(ids) == 8100


def test_a_full_redis_still_tells_the_queues(
    store: DelayStore, own_server: object, make_store: MakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there is no room for a note, that is logged, and what waits can be removed all the same."""
    full = make_store(own_server)
    full.delivery.offer("q", waiting("i"))
    full.client.config_set("maxmemory", 1)
    assert full.chains.cancel_chains(["i"]) == CancelledChains(["q"], set())
    assert "not ended" in caplog.text
    assert full.lookup.cancel(["q"], ["i"]).keys() == {"i"}


def test_a_registry_of_the_wrong_type_is_an_error(store: DelayStore) -> None:
    """Where the names of the queues cannot be read, nothing can be searched, and the error says why."""
    store.client.set("{delayq}:queues", "somebody else's")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        store.chains.cancel_chains(["i"])
