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
    with Bar(label, total, printing=printing) as bar:
        for done, item in enumerate(items, 1):
            yield item
            bar(done, total)


class Bar:
    """A progress bar for work that reports how far it is. Its arguments and when it is seen are as of the above."""

    def __init__(self, label: str, total: int | None = None, *, printing: bool = False) -> None:
        self._is_seen = sys.stderr.isatty() and not (printing and sys.stdout.isatty())
        self._label, self._total, self._done = label, total, 0
        self._began = self._drawn = monotonic()
        self._bar: Any = None

    def __call__(self, done: int, of: int | None = None) -> None:
        """Notes that so many items are done, of so many in all."""
        self._done = done
        if not self._is_seen:
            return
        now = monotonic()
        if now - self._drawn >= EVERY_S and now - self._began >= AFTER_S:
            self._bar = self._bar or _bar(self._label, of or self._total)
            self._bar.length = of or self._bar.length
            self._bar.update(done - self._bar.pos)
            self._drawn = now

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *failure: object) -> None:
        if self._bar is not None:
            self._bar.update(self._done - self._bar.pos)
            self._bar.render_finish()


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
