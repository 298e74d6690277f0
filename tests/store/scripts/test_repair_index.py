"""``repair_index.lua``: finds index entries that no body belongs to."""

import pytest

from celery_ext.repair.store import RepairStore
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    FUTURE_MS,
    PAST_MS,
    Ear,
    contents,
    duplicate_id,
    only,
    popped,
    waiting,
)
from tests.support.store.layouts import hash_only

pytestmark = hash_only  # it looks at what only that layout keeps


def members(store: DelayStore) -> list[bytes]:
    return [bytes(member) for member in store.client.zrange(DUE, 0, -1)]


@pytest.mark.parametrize("mend", [False, True])
def test_sound_entries_stay(store: DelayStore, ear: Ear, mend: bool) -> None:
    """Entries whose bodies are there, marked or not and of messages with one id, are sound and change no key."""
    store.delivery.offer("q", waiting("i"), waiting("j"), waiting("k", priority=9), waiting("i", body="two"))
    before = contents(store.client)
    ear.heard()
    assert store.part(RepairStore).repair_index("q", members(store), mend=mend) == ["sound"] * 4
    assert contents(store.client) == before
    assert ear.heard() == []


@pytest.mark.parametrize("mend", [False, True])
def test_an_entry_without_a_body_is_lost(store: DelayStore, mend: bool) -> None:
    """Entries whose bodies are gone are named, and with ``mend`` removed; the others stay."""
    store.delivery.offer("q", waiting("sound", FUTURE_MS + 1))
    sound = contents(store.client)
    store.delivery.offer("q", waiting("bare"), waiting("marked"), waiting("sound", FUTURE_MS + 2, "two"))
    store.client.hdel(BODIES, "bare", "marked", duplicate_id("sound", "two"))
    before = contents(store.client)
    assert store.part(RepairStore).repair_index("q", members(store), mend=mend) == ["lost", "lost", "sound", "lost"]
    after = contents(store.client)
    if mend:
        assert after.pop(b"delayq:{q}:order") == b"1"
    assert after == (sound if mend else before)


def test_an_entry_that_left_meanwhile_is_not_lost(store: DelayStore) -> None:
    """An entry that was transferred after it was listed is gone, and nothing is wrong with it."""
    store.delivery.offer("q", waiting("i", PAST_MS), waiting("j"))
    listed = members(store)
    store.delivery.transfer("q")
    assert store.part(RepairStore).repair_index("q", listed, mend=True) == ["gone", "sound"]
    assert store.part(RepairStore).repair_index("never used", listed, mend=True) == ["gone", "gone"]


@pytest.mark.parametrize("mend", [False, True])
@pytest.mark.parametrize(("stale", "right"), [(b"i", b"\x7f00000001i"), (b"\x7f00000009i", b"\x7f00000001i")])
@pytest.mark.parametrize("has_right", [False, True])
def test_a_message_whose_entry_is_not_that_of_its_body_is_unnamed(
    store: DelayStore, mend: bool, stale: bytes, right: bytes, has_right: bool
) -> None:
    """An entry of another layout than the body's is named; mended, the body has its own, with the due time of one."""
    store.delivery.offer("q", waiting("i", FUTURE_MS, priority=6))
    if not has_right:
        store.client.delete(DUE)
    store.client.zadd(DUE, {stale: FUTURE_MS + 5})
    before = contents(store.client)
    assert store.part(RepairStore).repair_index("q", [stale], mend=mend) == ["unnamed"]
    if mend:
        assert only(store, "i").due_ms == (FUTURE_MS if has_right else FUTURE_MS + 5)
        assert members(store) == [right]
        assert store.part(RepairStore).repair_index("q", [right], mend=mend) == ["sound"]
    else:
        assert contents(store.client) == before


def test_what_is_mended_is_delivered_once(store: DelayStore) -> None:
    """After repair, messages with entries of the wrong form are delivered, each once and in order."""
    store.delivery.offer("q", *(waiting(str(n), PAST_MS, str(n), priority=3 * (n % 2)) for n in range(6)))
    entries = store.client.zrange(DUE, 0, -1, withscores=True)
    store.client.zadd(DUE, {f"{n}": PAST_MS for n in range(1, 6)})
    store.client.zadd(DUE, {b"lost": PAST_MS})
    assert store.part(RepairStore).repair_index("q", members(store), mend=True).count("sound") == 6
    assert store.client.zrange(DUE, 0, -1, withscores=True) == entries
    assert store.delivery.transfer("q").moved == 6
    assert [popped(store.client, key) for key in ("q", "{q}\x06\x163")] == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
    assert not store.client.exists(DUE, BODIES)
