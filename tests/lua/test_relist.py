"""``relist.lua``: makes the list of Redisson's form anew when it has lost entries."""

from collections.abc import Callable

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.repair import MAX_ENTRIES, Relisted
from tests.support.store.forms import list_only
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, refuses_a_key_of_the_wrong_type, waiting
from tests.support.store.redisson_form import IDS, LISTED, NOTES, TIMEOUT, entry, offer, task

pytestmark = list_only

#: More than two pages of messages, of either kind.
COUNT = MAX_ENTRIES + 50


def relist(store: DelayStore, between: Callable[[], object] = lambda: None) -> list[Relisted]:
    """Makes the list anew; the caller may change the queue between two pages."""
    pages = [store.relist("q", mend=True)]
    while pages[-1].word == "more":
        between()
        pages.append(store.relist("q", pages[-1], mend=True))
    assert pages[-1].word == "end"
    return pages


def fill(store: DelayStore, count: int = COUNT) -> None:
    """Lets messages of ours and of another client wait, all of which can be found by their ids."""
    for start in range(0, count, 100):
        store.offer("q", *(waiting(f"i{n}", FUTURE_MS + n % 7) for n in range(start, min(start + 100, count))))
    for number in range(count):
        offer(store, number, task(f"other{number}"), FUTURE_MS + 3)
    store.index("q")


def is_sound(store: DelayStore) -> bool:
    """Whether each entry that waits is in the list once, and in it nothing else."""
    listed, waits = store.client.lrange(LISTED, 0, -1), store.client.zrange(TIMEOUT, 0, -1)
    return sorted(listed) == sorted(waits)


def test_a_list_that_has_all_stays(store: DelayStore) -> None:
    """A list that has all that waits, and garbage, is left as it is."""
    fill(store)
    store.cancel(["q"], [f"i{n}" for n in range(50)])
    before = contents(store.client)
    assert relist(store) == [Relisted("end", 0, [])]
    assert contents(store.client) == before


@pytest.mark.parametrize("lost", ["all", "some"])
def test_a_list_that_lost_entries_is_made_anew(store: DelayStore, lost: str) -> None:
    """How many it lost is told, and nothing changes; mended, it has each entry once, and all are found by their ids."""
    fill(store)
    store.client.delete(LISTED) if lost == "all" else store.client.ltrim(LISTED, 99, -2)
    before = contents(store.client)
    count = 2 * COUNT if lost == "all" else 100
    assert store.relist("q", mend=False) == Relisted("end", count, [])
    assert contents(store.client) == before
    if lost == "some":  # its tail is not the one up to which all are known
        assert store.relist("q", mend=True) == Relisted("unknown", 0, [])
        assert contents(store.client) == before
        store.index("q")
    pages = relist(store)
    assert [page.lost for page in pages] == [count, *[0] * (len(pages) - 1)]
    assert len(pages) > 2
    assert is_sound(store)
    assert store.relist("q", mend=False).lost == 0
    assert store.index("q") == 0
    offer(store, COUNT, task("late"))
    assert store.index("q") == 1


def test_what_comes_and_goes_meanwhile_is_listed_once(store: DelayStore) -> None:
    """Messages that we and others offer and take away between the pages are in the list once, or not at all."""
    fill(store)
    store.client.delete(LISTED)
    turn = iter(range(1000))

    def change() -> None:
        n = next(turn)
        store.offer("q", waiting(f"early{n}", PAST_MS), waiting(f"new{n}", FUTURE_MS + 8))
        offer(store, 10_000 + n, task(f"late{n}"), FUTURE_MS + 9)
        store.get(["q"], [f"late{n}", "unknown"])  # puts it into the index of ids
        gone = entry(n, task(f"other{n}"))
        store.client.zrem(TIMEOUT, gone)
        store.client.lrem(LISTED, 1, gone)
        store.cancel(["q"], [f"i{n}"])
        store.transfer("q")

    relist(store, change)
    assert next(turn) >= 2
    listed, waits = store.client.lrange(LISTED, 0, -1), store.client.zrange(TIMEOUT, 0, -1)
    assert len(listed) == len(set(listed))
    assert set(waits) <= set(listed)


def test_one_that_was_broken_off_is_begun_anew(store: DelayStore) -> None:
    """After the first page only, another call begins from the start, and all are listed once."""
    fill(store)
    store.client.delete(LISTED)
    assert store.relist("q", mend=True).word == "more"
    relist(store)
    assert is_sound(store)


def test_an_expiring_queue_keeps_its_time(store: DelayStore) -> None:
    """The list that is made anew expires with the queue's index."""
    store.offer("q", waiting("i", PAST_MS), expire_ms=60_000)
    store.client.delete(LISTED)
    relist(store)
    assert 0 < store.client.pttl(LISTED) <= 60_000


@pytest.mark.parametrize("key", [TIMEOUT, LISTED, NOTES, IDS])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and nothing is mended."""
    store.offer("q", waiting("i"))
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.relist("q", mend=True))
