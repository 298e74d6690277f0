"""``repair_index.lua`` in Redisson's layout: finds entries without a message, and those that no id leads to."""

import struct

import pytest

from celery_ext.repair.store import RepairStore
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, Ear, contents, popped, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.redisson_layout import IDS, LISTED, NOTES, TIMEOUT, offer, task

pytestmark = redisson_only

MALFORMED = [b"", b"\x07", b"\x08" + b"x" * 16, b"\x08" + b"x" * 8 + struct.pack("<Q", 9) + b"too few", b"x" * 500]


def members(store: DelayStore) -> list[bytes]:
    return [bytes(member) for member in store.client.zrange(TIMEOUT, 0, -1)]


def fill(store: DelayStore) -> None:
    """Lets messages of ours wait, also of one id, and of another client."""
    store.delivery.offer("q", waiting("i"), waiting("j"), waiting("k", priority=9), waiting("i", body="two"))
    offer(store, 1, task("other"), FUTURE_MS + 1)


@pytest.mark.parametrize("mend", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_sound_entries_stay(store: DelayStore, ear: Ear, mend: bool, indexed: bool) -> None:
    """Entries of ours and of others, indexed or yet to be, are sound and change no key."""
    fill(store)
    if indexed:
        store.lookup.index("q")
    before = contents(store.client)
    ear.heard()
    assert store.part(RepairStore).repair_index("q", members(store), mend=mend) == ["sound"] * 5
    assert contents(store.client) == before
    assert ear.heard() == []


@pytest.mark.parametrize("mend", [False, True])
def test_an_entry_without_a_message_is_lost(store: DelayStore, mend: bool) -> None:
    """Entries that nobody could deliver are named, and with ``mend`` removed; the others stay."""
    fill(store)
    store.client.zadd(TIMEOUT, dict.fromkeys(MALFORMED, PAST_MS))
    store.client.rpush(LISTED, MALFORMED[1])
    store.lookup.index("q")
    before = contents(store.client)
    states = store.part(RepairStore).repair_index("q", members(store), mend=mend)
    assert sorted(states) == ["lost"] * len(MALFORMED) + ["sound"] * 5
    if not mend:
        assert contents(store.client) == before
    assert store.queues.size("q") == 5 if mend else 5 + len(MALFORMED)
    states = store.part(RepairStore).repair_index("q", [*MALFORMED, b"left"], mend=True)
    assert states == ["gone" if mend else "lost"] * 5 + ["gone"]


@pytest.mark.parametrize("mend", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_an_entry_that_no_id_leads_to_gets_a_record(store: DelayStore, mend: bool, moved: bool) -> None:
    """When the index of ids is lost, or has another due time, messages are named; mended, their ids find them all."""
    fill(store)
    store.lookup.index("q")
    whole = contents(store.client)
    if moved:
        for member in members(store):
            store.client.zincrby(TIMEOUT, 5, member)
    else:
        store.client.delete(IDS)
    before = contents(store.client)
    assert store.part(RepairStore).repair_index("q", members(store), mend=mend) == ["unnamed"] * 5
    if not mend:
        assert contents(store.client) == before
        return
    assert store.part(RepairStore).repair_index("q", members(store), mend=mend) == ["sound"] * 5
    if not moved:
        named = contents(store.client)[IDS.encode()]
        assert named[b"other"] == whole[IDS.encode()][b"other"]
    found = store.lookup.get(["q"], ["other"])
    assert [each.body for each in found["other"]] == [task("other")]
    ids = [each.id for each in by_id.browse(store, "q")]
    assert sum(map(len, store.lookup.get(["q"], list(set(ids))).values())) == 5


def test_a_lost_count_is_put_right_by_the_next_message(store: DelayStore) -> None:
    """When the count of marked messages is lost, later ones come after those that wait, under marks of their own."""
    store.delivery.offer("q", *(waiting(name, PAST_MS, name) for name in "abc"))
    store.client.delete(NOTES)
    store.delivery.offer("q", *(waiting(name, PAST_MS, name) for name in "def"))
    assert len({each[:9] for each in members(store)}) == 6
    assert {each: found[0].body for each, found in store.lookup.get(["q"], list("abcdef")).items()} == {
        each: each.encode() for each in "abcdef"
    }
    store.delivery.transfer("q")
    assert popped(store.client, "q") == [b"a", b"b", b"c", b"d", b"e", b"f"]
