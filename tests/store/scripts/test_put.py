"""``put.lua``: publishes a page of messages, once."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.delivery import PAGE_TTL_MS
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import Offer, PageId
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import now
from tests.support.store.keyspace import FUTURE_MS, contents, look, popped, waiting


def put(store: DelayStore, number: int, *offers: Offer, sender: str = "s", expire_ms: int = 0) -> str:
    return store.delivery.put("q", PageId(sender, number), offers, expire_ms)


def test_a_page_is_stored_and_pushed(store: DelayStore) -> None:
    """Messages of later wait in the store, those of now are in their lists, and the queue is known."""
    assert put(store, 1, waiting("i"), now("a"), now("b", priority=9), now("c")) == "first"
    assert look(store)[b"waiting in q"] == [("i", FUTURE_MS, 0, b"body of i")]
    assert popped(store.client, "q") == [b"body of a", b"body of c"]
    assert popped(store.client, "{q}\x06\x169") == [b"body of b"]
    assert store.queues.names() == ["q"]
    assert 0 < store.client.pttl(store.keys.sender("s", "q")) <= PAGE_TTL_MS


def test_more_messages_than_lua_unpacks_are_pushed(store: DelayStore) -> None:
    """However many messages of a page are due at once, all come to their list, in their order."""
    put(store, 1, *(now(str(number)) for number in range(8100)))
    assert popped(store.client, "q") == [f"body of {number}".encode() for number in range(8100)]


@pytest.mark.parametrize(
    "page",
    [
        {},
        {1: waiting("0", due_ms=FUTURE_MS + 1)},
        {1: Offer("0", repr(FUTURE_MS), 0, "another body")},
        {1: waiting("1", due_ms=FUTURE_MS)},
        {1: waiting("1", priority=3)},
        {1: waiting("\x7f1")},
        {1: Offer("1", repr(FUTURE_MS + 1), 0, "large" * 4000)},
        {1: Offer("waits", repr(FUTURE_MS + 1), 0, "another body")},
        {1: waiting("waits", due_ms=FUTURE_MS + 9)},
        {1: waiting("1", due_ms=FUTURE_MS + 9)},
        {1: now("1")},
        {at: waiting(str(at), due_ms=FUTURE_MS + at % 2) for at in range(4)},
        {at: waiting(str(at), due_ms=FUTURE_MS + 9 - at // 2, priority=3 * (at % 2)) for at in range(4)},
        {0: waiting("0", due_ms=FUTURE_MS + 9), 2: waiting("2", due_ms=FUTURE_MS + 8)},
    ],
)
def test_a_page_is_stored_as_its_messages_one_by_one(make_store: MakeStore, page: dict[int, Offer]) -> None:
    """Ids that are taken, repeated messages, equal due times and priorities do in a page what they do alone."""
    offers = [page.get(at, waiting(str(at), due_ms=FUTURE_MS + at)) for at in range(4)]
    found = []
    for sizes in (1, len(offers)):
        store = make_store()
        store.client.flushdb()
        put(store, 1, waiting("waits", due_ms=FUTURE_MS + 9))
        for number in range(0, len(offers), sizes):
            put(store, 2 + number, *offers[number : number + sizes])
        store.client.delete(store.keys.sender("s", "q"))
        found.append((look(store), contents(store.client)))
    assert found[0] == found[1]


def test_a_due_time_may_count_from_the_arrival(store: DelayStore) -> None:
    """A message with a delay instead of a due time is due that long after Redis gets it, and without one at once."""
    before = store.now_ms()
    put(store, 1, Offer("i", "+600500.0", 0, "of i"), Offer("a", "+0.0", 0, "of a"))
    [(identity, due_ms, *_)] = look(store)[b"waiting in q"]
    assert identity == "i"
    assert before + 600_500 <= due_ms + 1 <= store.now_ms() + 600_502  # Redisson's layout keeps whole ms
    assert popped(store.client, "q") == [b"of a"]


def test_a_page_that_comes_again_changes_nothing(store: DelayStore) -> None:
    """The same page, or one before it, is known again, also when its messages have left meanwhile."""
    page = (waiting("i"), now("a"))
    put(store, 1, *page)
    put(store, 2, now("b"))
    before = contents(store.client)
    for number in (2, 1):
        assert put(store, number, *page) == "repeated"
        assert contents(store.client) == before
    assert store.lookup.cancel(["q"], ["i"])
    assert popped(store.client, "q") == [b"body of a", b"body of b"]
    assert put(store, 1, *page) == "repeated"
    assert (store.queues.size("q"), store.client.llen("q")) == (0, 0)


def test_pages_of_others_are_others(store: DelayStore) -> None:
    """Pages with one number are told apart by their senders, and by the key prefix."""
    for sender in ("s", "t", "", "ü"):
        assert put(store, 1, now("a"), sender=sender) != "repeated"
    assert store.client.llen("q") == 4


def test_a_page_without_delayed_messages_makes_no_queue_known(store: DelayStore) -> None:
    """Messages of now are no reason for transfer workers to look at their queue."""
    put(store, 1, now("a"))
    assert store.queues.names() == []


def test_a_queue_that_expires(store: DelayStore) -> None:
    """With x-expires, what is stored lives until it is due and longer, and the lists as long as with stock kombu."""
    put(store, 1, waiting("i"), now("a"), expire_ms=60_000)
    assert 0 < store.client.pttl("q") <= 60_000
    assert all(
        store.client.pttl(key) > 60_000
        for key in LAYOUT_OF[store.layout].keys(store.keys, "q")
        if store.client.exists(key)
    )
