"""Shows how far a command is."""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from time import monotonic
from typing import Any, TypeVar

import click

T = TypeVar("T")

#: A bar appears after this time in s, so that a quick command has none.
AFTER_S = 0.5
#: How often the bar is drawn, in s.
EVERY_S = 0.1


def with_progress(
    items: Iterable[T],
    label: str,
    total: int | None = None,
    *,
    printing: bool = False,
    size: Callable[[T], int] = lambda _: 1,
) -> Iterator[T]:
    """Yields items, with a progress bar on stderr if that is a terminal and the work takes longer than ``AFTER_S``.

    Args:
        items: The items; reading one does the work.
        label: Label of the bar, such as ``cancelling``.
        total: Sum of the sizes; None if it is unknown: then the bar only counts.
        printing: Whether the command prints meanwhile. If it does, there is no bar while stdout is a terminal, too.
        size: Size of an item, such as the number of messages of a page.
    """
    done = 0
    with Bar(label, total, printing=printing) as bar:
        for item in items:
            yield item
            done += size(item)
            bar(done)


class Bar:
    """A progress bar for work that reports how far it is. Its arguments and when it is seen are as in the above."""

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
            if self._bar is None:
                length = of or self._total
                # With an iterable that has no length, click shows a bar of unknown length.
                items = count() if length is None else None
                self._bar = click.progressbar(items, length, self._label, show_pos=True, file=sys.stderr)
            self._bar.length = of or self._bar.length
            self._bar.update(done - self._bar.pos)
            self._drawn = now

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *failure: object) -> None:
        if self._bar is not None:
            self._bar.update(self._done - self._bar.pos)
            self._bar.render_finish()
