"""How the tests read parts of the queue ``q``."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from kombu_delayq.marks import id_of
from kombu_delayq.results import Part, Scanned
from kombu_delayq.store import DelayStore

WHOLE = Part("q")


def pages(store: DelayStore, part: Part = WHOLE, **how: Any) -> Iterator[Scanned]:
    """Reads page by page; the caller may change the queue between two."""
    page = None
    for _ in range(10_000):
        page = store.scan(part, page, **how)
        yield page
        if not page.more:
            return
    raise AssertionError("it does not end")


def scanned(
    store: DelayStore, part: Part = WHOLE, between: Callable[[Scanned], Any] = lambda page: None, **how: Any
) -> list[str]:
    """Returns the ids on all pages of a part."""
    found = []
    for page in pages(store, part, **how):
        found += [id_of(member).decode(errors="surrogateescape") for member in page.members]
        between(page)
    return found


def cut_into(store: DelayStore, count: int, **bounds: Any) -> list[Part]:
    """Cuts the queue into parts of the same size, but for one message."""
    size = store.count("q", **bounds)
    return store.cut("q", [size * n // count - 1 for n in range(1, count)], **bounds)


def connected(parts: Sequence[Part]) -> bool:
    """Whether parts begin and end with the queue, and each begins where the one before ends."""
    begin_and_end = parts[0].after is None and parts[-1].until is None
    return begin_and_end and all(one.until == other.after for one, other in pairwise(parts))
