"""Reads parts of the queue ``q``."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Part, Scanned


def whole(store: DelayStore) -> Part:
    """Returns the part with all messages in the store's layout."""
    return Part("q", layout=store.layout)


def ids_of(store: DelayStore, page: Scanned) -> list[str]:
    """Returns the ids of the messages on a page."""
    found = store.scan.ids(whole(store), page.members) if page.members else []
    return [identity.decode(errors="surrogateescape") for identity in found]


def pages(store: DelayStore, part: Part | None = None, **how: Any) -> Iterator[Scanned]:
    """Reads a part, by default all, page by page; the caller may change the queue between two."""
    part, page = part or whole(store), None
    for _ in range(10_000):
        page = store.scan.scan(part, page, **how)
        yield page
        if not page.more:
            return
    raise AssertionError("it does not end")


def read_whole(store: DelayStore) -> Scanned:
    """Reads all as one page."""
    read = [*pages(store)]
    members, dues, lengths = ([one for page in read for one in page[at]] for at in range(3))
    return Scanned(members, dues, lengths, more=False)


def scanned(
    store: DelayStore, part: Part | None = None, between: Callable[[Scanned], Any] = lambda page: None, **how: Any
) -> list[str]:
    """Returns the ids on all pages of a part."""
    found = []
    for page in pages(store, part, **how):
        found += ids_of(store, page)
        between(page)
    return found


def cut_into(store: DelayStore, count: int, **bounds: Any) -> list[Part]:
    """Cuts the queue into parts whose sizes differ by one message at most."""
    size = store.scan.count("q", **bounds)
    return store.scan.split("q", [size * n // count - 1 for n in range(1, count)], **bounds)


def connected(parts: Sequence[Part]) -> bool:
    """Whether parts begin and end with the queue, and each begins where the one before ends."""
    begin_and_end = parts[0].after is None and parts[-1].until is None
    return begin_and_end and all(one.until == other.after for one, other in pairwise(parts))
