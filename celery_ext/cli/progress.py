"""The progress bar of a command that takes long."""

import sys
from collections.abc import Iterable, Iterator
from itertools import count
from time import monotonic
from typing import Any, Protocol, TypeVar

import click

T = TypeVar("T")
P = TypeVar("P", bound="Page")

#: A bar appears after this time in s, so that a quick command has none.
AFTER_S = 0.5
#: How often the bar is drawn, in s.
EVERY_S = 0.1


def with_progress(items: Iterable[T], label: str, total: int | None = None, *, printing: bool = False) -> Iterator[T]:
    """Yields items, with a progress bar on stderr if that is a terminal and the work takes longer than ``AFTER_S``.

    Args:
        items: The items; reading one does the work.
        label: Label of the bar, such as ``cancelling``.
        total: Number of items; None if it is unknown: then the bar only counts.
        printing: Whether the command prints meanwhile. If it does, there is no bar while stdout is a terminal, too.
    """
    if not sys.stderr.isatty() or (printing and sys.stdout.isatty()):
        yield from items
        return
    began = drawn = monotonic()
    bar: Any = None
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            now = monotonic()
            if now - drawn >= EVERY_S and now - began >= AFTER_S:
                bar = bar or _bar(label, total)
                bar.update(done - bar.pos)
                drawn = now
    finally:
        if bar is not None:
            bar.update(done - bar.pos)
            bar.render_finish()


class Page(Protocol):
    """What a page of work has done."""

    @property
    def looked(self) -> int:
        """How many items it had."""


def by_row(pages: Iterable[P]) -> Iterator[P | None]:
    """Yields each page, and None for each of its other items, so that a bar counts items."""
    for page in pages:
        yield page
        yield from [None] * (page.looked - 1)


def _bar(label: str, total: int | None) -> Any:
    # With an iterable that has no length, click shows a bar of unknown length.
    iterable = count() if total is None else None
    return click.progressbar(iterable, length=total, label=label, show_pos=True, file=sys.stderr)
