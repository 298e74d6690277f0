"""``DelayStore.browse``: reads waiting messages in pages, the next due first, bodies and all."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Page
from tests.support.store.keyspace import FUTURE_MS, lose_body, odd, waiting


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


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_page_begins_where_the_one_before_ended(store: DelayStore, count: int) -> None:
    """When the last message of a page leaves, bare or marked, of any bytes, the next begins right behind its place."""
    names = ["b", "\x7e", "\x01", "B", "ÿ", "é", "a", "\x7f", "\udc80\udcff", "A", "aa", "", "Z", "_"]
    store.delivery.offer("q", *(odd(name) for name in names))
    assert browsed(store, lambda page: store.lookup.cancel(["q"], [page.messages[-1].id]), count=count) == names
    assert len(browsed(store)) == len(names) - -(-len(names) // count)


def test_a_message_without_its_body_is_returned_as_such(store: DelayStore) -> None:
    """What is left of a message that lost its body is on the page, with None for it; an empty body is a body."""
    store.delivery.offer("q", waiting("i"), waiting("j"), waiting("k", priority=3))
    store.delivery.offer("q", odd("empty", due_ms=FUTURE_MS + 1)._replace(body=b""))
    lose_body(store, "i", "j", "k")
    found = [*by_id.browse(store, "q")]
    assert [each.body for each in found] == [None, None, None, b""]
    assert [each.priority for each in found] == [0, 0, 0, 0]
    assert found[3].id == "empty"
    assert browsed(store, count=1) == [each.id for each in found]
    # Of an entry of Redisson's layout that is cut short, nobody knows the id.
    assert store.layout == "redisson" or [each.id for each in found[:3]] == ["i", "j", "k"]
