"""``pages`` cuts messages by number and by bytes."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kombu_delayq.message.paging import pages

MOST, MOST_BYTES = 5, 100
SIZES = st.lists(st.integers(0, 30) | st.integers(MOST_BYTES - 1, MOST_BYTES + 1), max_size=40)


def cut(sizes: list[int]) -> list[list[int]]:
    return list(pages(sizes, MOST, MOST_BYTES, lambda size: size))


@given(SIZES)
def test_pages_hold_every_item_once_in_order(sizes: list[int]) -> None:
    """Put together again, the pages are the items."""
    assert list(itertools.chain.from_iterable(cut(sizes))) == sizes


@given(SIZES)
def test_only_the_last_item_of_a_page_reaches_a_bound(sizes: list[int]) -> None:
    """A page is never empty, and without its last item it is below both bounds."""
    for page in cut(sizes):
        assert 1 <= len(page) <= MOST
        assert sum(page[:-1]) < MOST_BYTES


@given(SIZES)
def test_a_page_ends_only_when_it_is_full(sizes: list[int]) -> None:
    """All pages but the last have as many items, or as many bytes, as a page has."""
    for page in cut(sizes)[:-1]:
        assert len(page) == MOST or sum(page) >= MOST_BYTES


def test_without_bytes_items_are_cut_by_number() -> None:
    """Items that have no size fill a page by their number alone."""
    assert [len(page) for page in pages(range(12), MOST)] == [5, 5, 2]


def test_what_came_before_an_error_is_a_page() -> None:
    """When an item cannot be made, those before it come first, and then its error."""

    def items() -> Iterator[int]:
        yield from range(MOST + 2)
        raise ValueError("no more")

    found = pages(items(), MOST)
    assert [next(found), next(found)] == [[0, 1, 2, 3, 4], [5, 6]]
    with pytest.raises(ValueError, match="no more"):
        next(found)
