"""``repair_list.lua``: gives entries of Redisson's layout that are in the list alone their place in the index again."""

import pytest

from celery_ext.repair.store import MAX_ENTRIES, RepairStore
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from tests.support.store.keyspace import (
    FUTURE_MS,
    ODD_IDS,
    PAST_MS,
    Ear,
    announced,
    contents,
    odd,
    only,
    popped,
    waiting,
)
from tests.support.store.layouts import redisson_only
from tests.support.store.redisson_layout import IDS, LISTED, NOTES, TIMEOUT, entry, offer, task

pytestmark = redisson_only


def put_back(store: DelayStore, *, mend: bool = True) -> int:
    """Looks through the whole list. Returns how many messages had lost their index entries."""
    return sum(len(page.unindexed) for page in store.part(RepairStore).list_pages("q", mend=mend))


@pytest.mark.parametrize("mend", [False, True])
def test_a_list_whose_entries_are_sound_or_left_stays(store: DelayStore, ear: Ear, mend: bool) -> None:
    """Entries that wait, and those that were transferred, cancelled, moved or removed by others, stay as they are."""
    store.delivery.offer("q", *(waiting(f"past{n}", PAST_MS) for n in range(90)))
    store.delivery.offer("q", *(waiting(f"i{n}", body=task(f"i{n}")) for n in range(150)))
    store.delivery.transfer("q")
    store.lookup.cancel(["q"], [f"i{n}" for n in range(50)])
    store.lookup.reschedule("q", [Change(only(store, f"i{n}"), FUTURE_MS + 9, b"new") for n in range(50, 60)])
    for number in range(30):  # of ids that ours had, which are in the list still
        offer(store, number, task(f"i{number}"))
    store.lookup.index("q")
    for number in range(10):  # as Redisson removes one, which leaves its record
        store.client.zrem(TIMEOUT, entry(number, task(f"i{number}")))
        store.client.lrem(LISTED, 1, entry(number, task(f"i{number}")))
    before = contents(store.client)
    ear.heard()
    assert len(before[LISTED.encode()]) > store.queues.size("q"), "nothing of what has left is in the list"
    assert put_back(store, mend=mend) == 0
    assert contents(store.client) == before
    assert ear.heard() == []


@pytest.mark.parametrize("mend", [False, True])
@pytest.mark.parametrize("count", [1, 20, MAX_ENTRIES * 3])
def test_what_lost_its_index_entry_gets_it_again(store: DelayStore, ear: Ear, count: int, mend: bool) -> None:
    """Messages of ours and of others are counted once; mended, all is as before, and a new head is announced."""
    for start in range(0, count, 100):
        ours = [waiting(f"i{n}", FUTURE_MS + n % 7, priority=n % 10) for n in range(start, min(start + 100, count))]
        store.delivery.offer("q", *ours)
    for number in range(count):
        offer(store, number, task(f"other{number}"), FUTURE_MS + 3, old=number % 2 == 0)
    store.lookup.index("q")
    whole = contents(store.client)
    store.client.delete(TIMEOUT)
    damaged = contents(store.client)
    ear.heard()
    assert put_back(store, mend=mend) == 2 * count
    assert contents(store.client) == (whole if mend else damaged)
    heard = ear.heard()
    assert heard[-1:] == ([announced(store, FUTURE_MS)] if mend else [])
    assert heard == sorted(heard, reverse=True)
    if mend:
        assert put_back(store) == 0


def test_some_are_put_back_among_others(store: DelayStore) -> None:
    """Messages that lost their index entries are delivered in their places, those that have left are not, each once."""
    store.delivery.offer("q", *(waiting(str(n), PAST_MS + n, str(n)) for n in range(200)))
    store.lookup.cancel(["q"], [str(n) for n in range(0, 200, 5)])
    index = store.client.zrange(TIMEOUT, 0, -1)
    store.client.zrem(TIMEOUT, *index[::3])
    assert put_back(store) == len(index[::3])
    while store.delivery.transfer("q").moved:
        pass
    assert popped(store.client, "q") == [str(n).encode() for n in range(200) if n % 5]
    assert not store.client.exists(TIMEOUT, LISTED, NOTES, IDS)


def test_a_page_has_what_it_is_asked_for(store: DelayStore) -> None:
    """A page begins where it is to, from the end of the list on, and is no longer than it is to be."""
    store.delivery.offer("q", *(waiting(f"i{n}") for n in range(10)))
    store.client.delete(TIMEOUT)
    part = store.part(RepairStore)
    assert [part.repair_list("q", skip, mend=False, count=4)[0] for skip in (0, 4, 8, 12)] == [4, 4, 2, 0]
    assert len(part.repair_list("q", 8, mend=True, count=4).unindexed) == 2
    assert store.lookup.get(["q"], [f"i{n}" for n in range(10)]).keys() == {"i0", "i1"}


@pytest.mark.parametrize("size", [1, 5_000, 200_000])
def test_pages_are_bounded_in_bytes(store: DelayStore, size: int) -> None:
    """However large messages are, a page has one at least, and after the first no more than about 300 kB of them."""
    store.delivery.offer("q", *(waiting(f"{n:02}", body="x" * size) for n in range(40)))
    pages = list(store.part(RepairStore).list_pages("q", mend=False))
    assert all(page.entries for page in pages[:-1])
    assert all(page.size < 300_000 + size + 100 for page in pages[1:])


def test_the_same_entry_twice_is_put_back_once(store: DelayStore) -> None:
    """An entry that is in the list twice is one message."""
    store.delivery.offer("q", waiting("i"))
    store.client.rpush(LISTED, store.client.lindex(LISTED, 0))
    store.client.delete(TIMEOUT)
    assert put_back(store) == 1
    assert store.queues.size("q") == 1


def test_an_expiring_queue_keeps_its_time(store: DelayStore) -> None:
    """The index that a repair makes expires with the queue's list."""
    store.delivery.offer("q", waiting("i", PAST_MS), expire_ms=60_000)
    store.client.delete(TIMEOUT)
    put_back(store)
    for key in (TIMEOUT, LISTED, NOTES, IDS):
        assert 0 < store.client.pttl(key) <= 60_000


@pytest.mark.parametrize("identity", ODD_IDS)
def test_any_id(store: DelayStore, identity: str) -> None:
    """Messages of any id, and others of that id, are put back."""
    store.delivery.offer("q", odd(identity, "one"), odd(identity, "two"))
    whole = contents(store.client)
    store.client.delete(TIMEOUT)
    assert put_back(store) == 2
    assert contents(store.client) == whole
