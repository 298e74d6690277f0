"""``DelayStore.browse``: reads waiting messages in pages, the next due first, bodies and all."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import MAX_BYTES, Change
from kombu_delayq.store.types import Page, Waiting
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    BODIES,
    BOUNDS,
    DUE,
    FUTURE_MS,
    ODD_IDS,
    PAST_MS,
    contents,
    lose_body,
    odd,
    only,
    refuses_a_key_of_the_wrong_type,
    waiting,
)


def pages(store: DelayStore, **bounds: Any) -> Iterator[Page]:
    """Reads page by page; the caller may change the queue between two."""
    page = store.scan.browse("q", **bounds)
    for _ in range(10_000):
        yield page
        if not page.more:
            return
        page = store.scan.browse("q", page, **bounds)
    raise AssertionError("it does not end")


def browsed(store: DelayStore, between: Callable[[Page], Any] = lambda page: None, **bounds: Any) -> list[str]:
    """Returns the ids on all pages."""
    found = []
    for page in pages(store, **bounds):
        found += [message.id for message in page.messages]
        between(page)
    return found


def test_messages_come_in_the_order_of_delivery(store: DelayStore) -> None:
    """All messages are returned whole in the order in which they are delivered, marked or not, and no key changes."""
    store.delivery.offer("q", waiting("z"), waiting("b", priority=6), waiting("a"), waiting("past", PAST_MS))
    store.delivery.offer("other", waiting("i"))
    before = contents(store.client)
    page = store.scan.browse("q")
    assert page.messages == [
        Waiting("q", "past", PAST_MS, 0, b"body of past", store.layout),
        Waiting("q", "z", FUTURE_MS, 0, b"body of z", store.layout),
        Waiting("q", "b", FUTURE_MS, 6, b"body of b", store.layout),
        Waiting("q", "a", FUTURE_MS, 0, b"body of a", store.layout),
    ]
    assert not page.more
    assert contents(store.client) == before


def test_an_empty_queue_has_one_empty_page(store: DelayStore) -> None:
    """Of a queue without messages, and within bounds that hold none, there is one page, and nothing on it."""
    assert store.scan.browse("q") == Page([], False, {})
    store.delivery.offer("q", waiting("i"))
    assert store.scan.browse("q", from_ms=FUTURE_MS + 1) == Page([], False, {})
    assert store.scan.browse("q", from_ms=FUTURE_MS, to_ms=FUTURE_MS - 1).messages == []


@pytest.mark.parametrize("count", [1, 2, 3, 50, 99, 100, 101, 5000])
def test_pages_of_any_size_hold_each_message_once(store: DelayStore, count: int) -> None:
    """With pages of any size each message is returned once, in order, and the last page says that it is the last."""
    store.delivery.offer("q", *(waiting(str(n), FUTURE_MS + n // 7) for n in range(100)))
    sizes = [len(page.messages) for page in pages(store, count=count)]
    assert sizes[:-1] == [count] * (len(sizes) - 1)
    assert 0 < sizes[-1] <= count
    assert browsed(store, count=count) == [str(n) for n in range(100)]


@pytest.mark.parametrize(("bounds", "expected"), BOUNDS)
@pytest.mark.parametrize("count", [1, 200])
def test_the_lower_bound_is_in_and_the_upper_is_out(
    store: DelayStore, bounds: dict[str, float], expected: str, count: int
) -> None:
    """Messages due at the lower bound are returned and counted, those due at the upper are not, on one page or more."""
    for name, due_ms in zip("abcde", (0, 1, 1, 2, 3), strict=True):
        store.delivery.offer("q", waiting(name, FUTURE_MS + due_ms))
    assert browsed(store, **bounds, count=count) == list(expected)
    assert store.scan.count("q", **bounds) == len(expected)


@pytest.mark.parametrize("size", [1, 9_990, 2 * MAX_BYTES])
def test_a_page_is_bounded_in_bytes(store: DelayStore, size: int) -> None:
    """A page holds one message at least, and no more than a few times the most bytes."""
    names = [f"{n:03}" for n in range(120 if size < MAX_BYTES else 20)]
    store.delivery.offer("q", *(waiting(name, body="x" * size) for name in names))
    for page in pages(store):
        assert 1 <= len(page.messages) <= 100
        assert (len(page.messages) - 1) * size <= 3 * MAX_BYTES
    assert browsed(store) == names


@pytest.mark.parametrize("how", ["cancel", "reschedule", "transfer"])
def test_what_leaves_between_pages_hides_no_other(make_store: MakeStore, how: str) -> None:
    """While the last message of each page leaves before the next, also among equal due times, each is returned once."""
    store = make_store(transfer_batch=7)
    store.delivery.offer("q", *(waiting(f"{n % 10}{n}", PAST_MS + n // 25) for n in range(100)))
    expected = browsed(store)

    def between(page: Page) -> None:
        last = page.messages[-1]
        if how == "cancel":
            store.lookup.cancel(["q"], [each.id for each in page.messages])
        elif how == "reschedule":
            store.lookup.reschedule("q", [Change(last, FUTURE_MS + len(last.id), b"new")])
        else:
            store.delivery.transfer("q")

    found = browsed(store, between, count=7, to_ms=FUTURE_MS)
    assert found == expected
    assert len(found) == 100


def test_what_is_rescheduled_behind_the_last_page_comes_again(store: DelayStore) -> None:
    """A message that moves while it is browsed may be seen twice or not at all; those that stay are seen once."""
    store.delivery.offer("q", *(waiting(str(n), FUTURE_MS) for n in range(30)))
    found = browsed(
        store,
        lambda page: store.lookup.reschedule("q", [Change(only(store, "3"), FUTURE_MS, f"{page.ends}".encode())]),
        count=10,
        to_ms=FUTURE_MS + 1,
    )
    assert sorted(set(found), key=int) == [str(n) for n in range(30)]
    assert [each for each in found if each != "3"] == [str(n) for n in range(30) if n != 3]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_page_begins_where_the_one_before_ended(store: DelayStore, count: int) -> None:
    """When the last message of a page leaves, bare or marked, of any bytes, the next begins right behind its place."""
    names = ["b", "\x7e", "\x01", "B", "ÿ", "é", "a", "\x7f", "\udc80\udcff", "A", "aa", "", "Z", "_"]
    store.delivery.offer("q", *(odd(name) for name in names))
    assert browsed(store, lambda page: store.lookup.cancel(["q"], [page.messages[-1].id]), count=count) == names
    assert len(browsed(store)) == len(names) - -(-len(names) // count)


def test_any_id(store: DelayStore) -> None:
    """A page may begin and end at a message of any id."""
    for identity in ODD_IDS:
        store.client.flushall()
        store.delivery.offer("q", waiting("before", PAST_MS), odd(identity), waiting("after", FUTURE_MS + 1))
        for count in (1, 2, 3):
            assert browsed(store, count=count) == ["before", identity, "after"]
        store.delivery.offer("q", odd(identity, "another"))
        for count in (1, 2, 3):
            assert len(browsed(store, count=count)) == 4


def test_a_message_without_its_body_is_returned_as_such(store: DelayStore) -> None:
    """What is left of a message that lost its body is on the page, with None for it; an empty body is a body."""
    store.delivery.offer("q", waiting("i"), waiting("j"), waiting("k", priority=3))
    store.delivery.offer("q", odd("empty", due_ms=FUTURE_MS + 1)._replace(body=b""))
    lose_body(store, "i", "j", "k")
    found = store.scan.browse("q").messages
    assert [each.body for each in found] == [None, None, None, b""]
    assert [each.priority for each in found] == [0, 0, 0, 0]
    assert found[3].id == "empty"
    assert browsed(store, count=1) == [each.id for each in found]
    # Of an entry of Redisson's layout that is cut short, nobody knows the id.
    assert store.layout == "redisson" or [each.id for each in found[:3]] == ["i", "j", "k"]


@pytest.mark.parametrize("key", [DUE, BODIES])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it."""
    store.delivery.offer("q", waiting("i"))
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.scan.browse("q"))
