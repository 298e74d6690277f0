"""``repair_bodies.lua``: gives bodies what they lack: an index entry, a place among the duplicates."""

import pytest

from celery_ext.repair.store import RepairStore
from kombu_delayq.message.once import key_of
from kombu_delayq.store import DelayStore
from kombu_delayq.text import as_bytes
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    FUTURE_MS,
    ODD_IDS,
    PAST_MS,
    Ear,
    contents,
    duplicate_id,
    odd,
    waiting,
)
from tests.support.store.layouts import hash_only

pytestmark = hash_only  # it looks at what only that layout keeps

TWO = duplicate_id("i", "two").encode()


def repair(store: DelayStore, due_ms: float | None = FUTURE_MS, *, mend: bool = True) -> dict[bytes, str]:
    """Repairs all bodies of a queue in one call, each with one due time. Returns the state of each."""
    ids = sorted(store.client.hkeys(BODIES))
    states = store.part(RepairStore).repair_bodies("q", [(each, due_ms) for each in ids], mend=mend)
    return dict(zip(ids, states, strict=True))


@pytest.mark.parametrize("mend", [False, True])
@pytest.mark.parametrize("due_ms", [None, PAST_MS])
def test_sound_bodies_stay(store: DelayStore, ear: Ear, due_ms: float | None, mend: bool) -> None:
    """Bodies that lack nothing, marked or not and of messages with one id, are sound and change no key."""
    store.delivery.offer("q", waiting("i"), waiting("j"), waiting("k", priority=9), waiting("i", body="two"))
    before = contents(store.client)
    ear.heard()
    assert set(repair(store, due_ms, mend=mend).values()) == {"sound"}
    assert contents(store.client) == before
    assert ear.heard() == []


@pytest.mark.parametrize("mend", [False, True])
def test_a_body_without_an_index_entry_gets_one(store: DelayStore, ear: Ear, mend: bool) -> None:
    """Bodies that would never be delivered are named; mended, they wait for the due time given, and it is announced."""
    store.delivery.offer("q", waiting("i", FUTURE_MS + 9), waiting("j", FUTURE_MS + 7, priority=6))
    mended = contents(store.client)
    ear.heard()
    store.client.delete(DUE)
    before = contents(store.client)
    bodies: list[tuple[bytes, float | None]] = [(b"i", FUTURE_MS + 9), (b"j", FUTURE_MS + 7)]
    assert store.part(RepairStore).repair_bodies("q", bodies, mend=mend) == ["unindexed"] * 2
    assert contents(store.client) == (mended if mend else before)
    assert ear.heard() == ([f"{FUTURE_MS + 7:.0f} q"] if mend else [])


def test_without_a_due_time_there_is_only_a_look(store: DelayStore, ear: Ear) -> None:
    """A body without an index entry, for which no due time is given, is named and left so."""
    store.delivery.offer("q", waiting("i"))
    store.client.delete(DUE)
    ear.heard()
    assert repair(store, None) == {b"i": "unindexed"}
    assert not store.client.exists(DUE)
    assert ear.heard() == []


def test_an_entry_that_is_there_keeps_its_due_time(store: DelayStore) -> None:
    """Of two repairs at once the second changes nothing, nor does one change what was rescheduled meanwhile."""
    store.delivery.offer("q", waiting("i", FUTURE_MS + 9))
    assert store.part(RepairStore).repair_bodies("q", [(b"i", PAST_MS), (b"i", PAST_MS)], mend=True) == ["sound"] * 2
    assert store.client.zscore(DUE, "i") == FUTURE_MS + 9


def test_a_body_that_left_meanwhile_is_gone(store: DelayStore) -> None:
    """A body that was transferred after it was listed gets no entry."""
    store.delivery.offer("q", waiting("i", PAST_MS))
    store.delivery.transfer("q")
    before = contents(store.client)
    assert store.part(RepairStore).repair_bodies("q", [(b"i", FUTURE_MS)], mend=True) == ["gone"]
    assert contents(store.client) == before


@pytest.mark.parametrize("mend", [False, True])
def test_a_body_beside_another_of_its_id_is_found_by_it_again(store: DelayStore, mend: bool) -> None:
    """A message that cannot be found by its id is named, and mended it is found."""
    store.delivery.offer("q", waiting("i"), waiting("i", body="two"), waiting("i~0123456789abcdef"))
    mended = contents(store.client)
    store.client.delete(DUPLICATES)
    before = contents(store.client)
    assert repair(store, mend=mend) == {b"i": "sound", TWO: "unnamed", b"i~0123456789abcdef": "sound"}
    assert contents(store.client) == (mended if mend else before)


def test_an_expiring_queue_keeps_its_time(store: DelayStore) -> None:
    """The keys that a repair makes expire with the queue's bodies."""
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("i", PAST_MS, "two"), expire_ms=60_000)
    store.client.delete(DUE, DUPLICATES)
    repair(store)
    for key in (DUE, BODIES, DUPLICATES):
        assert 0 < store.client.pttl(key) <= 60_000


def test_any_id(store: DelayStore) -> None:
    """Messages of any id, and others of that id, are put right."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.delivery.offer("q", odd(identity, "one"), odd(identity, "two"))
        whole = contents(store.client)
        store.client.delete(DUE, DUPLICATES)
        assert set(repair(store).values()) == {"unindexed"}
        assert contents(store.client) == whole
        assert set(repair(store).values()) == {"sound"}
        named = {
            as_bytes(duplicate_id(identity, "two")),
            *([as_bytes(identity)] if key_of(identity) != identity else []),
        }
        assert {*store.client.zrange(DUPLICATES, 0, -1)} == named


@pytest.mark.parametrize("value", ["\x7f", "\x7fnot hex", ""])
def test_a_damaged_body_hides_no_other(store: DelayStore, value: str) -> None:
    """A body with half a mark, or none at all, is told like any other, and the rest is put right."""
    store.client.hset(BODIES, mapping={"damaged": value, "sound": "body"})
    assert set(repair(store, None).values()) == {"unindexed"}
    assert set(repair(store).values()) == {"unindexed"}
    assert set(repair(store).values()) == {"sound"}
