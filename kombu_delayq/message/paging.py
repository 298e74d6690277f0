"""Cuts messages into pages by their number and their bytes, so that no call keeps Redis busy for long."""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")


class FillingPage(Generic[T]):
    """A page that is being filled.

    Args:
        most: The page is full with this number of items.
        most_bytes: The page is full with this number of bytes; the last item may exceed it.
    """

    def __init__(self, most: float, most_bytes: float = inf) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._items: list[T] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: T, size: int = 0) -> bool:
        """Adds an item of ``size`` bytes. Returns whether the page is full."""
        self._items.append(item)
        self._bytes += size
        return len(self._items) >= self._most or self._bytes >= self._most_bytes

    def take(self) -> list[T]:
        """Returns all items, and begins a new page."""
        items, self._items, self._bytes = self._items, [], 0
        return items


def pages(
    items: Iterable[T], most: float, most_bytes: float = inf, size_of: Callable[[T], int] = lambda _: 0
) -> Iterator[list[T]]:
    """Yields items a page at a time. No page is empty.

    When ``items`` raises an error, the items before it come as a page first; then the error is raised.

    Args:
        items: The items to be cut into pages.
        most: Largest number of items on a page.
        most_bytes: A page is full with this number of bytes; its last item may exceed it.
        size_of: Returns the bytes of an item.
    """
    page: list[T] = []
    size = 0
    try:
        for item in items:
            page.append(item)
            size += size_of(item)
            if len(page) >= most or size >= most_bytes:
                full, page, size = page, [], 0
                yield full
    except Exception:
        if page:
            yield page
        raise
    if page:
        yield page
