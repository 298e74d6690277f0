"""Shows how far a command is, says what became of the tasks whose ids it got, and chooses the exit code."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any, Protocol, TypeVar

import click

from celery_ext.cli.options import STDIN, count_of_ids
from celery_ext.cli.output import escaped, json_line, print_stderr
from celery_ext.waiting import Outcome
from kombu_delayq.audit import NOT_DONE

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


#: Each outcome in words, of one task or of many.
WORDS: Mapping[Outcome, str] = {
    "cancelled": "cancelled",
    "chain_ended": "not waiting, but the delay chain takes no further step",
    "rescheduled": "rescheduled",
    "transferred": "sent to be run",
    "not_delayed": "not waiting",
    "dead_letter": "not waiting, but a dead letter: drop it there, or a replay runs it with all its retries",
    "unreadable": "not changed, because the message cannot be rewritten",
}


def report(
    outcomes: Iterable[tuple[str, Outcome]],
    label: str,
    ids: Sequence[str],
    counts: Counter[Outcome],
    *,
    as_json: bool,
    words: Mapping[Outcome, str] = WORDS,
) -> None:
    """Prints what became of each task. For ids from the standard input it prints only totals, unless it prints JSON.

    Args:
        outcomes: Ids and what became of them; reading one does the work.
        label: Label of the progress bar, such as ``cancelling``.
        ids: The ids as they were given.
        counts: Gets how often each outcome came.
        as_json: Whether to print JSON.
        words: Each outcome in words.
    """
    in_sum = STDIN in ids and not as_json
    for identity, outcome in with_progress(outcomes, label, count_of_ids(ids), printing=not in_sum):
        counts[outcome] += 1
        if as_json:
            click.echo(json_line({"id": identity, "outcome": outcome}))
        elif not in_sum:
            write = print_stderr if outcome in NOT_DONE else click.echo
            write(f"{escaped(identity)}: {words[outcome]}")
    if in_sum:
        click.echo(
            ", ".join(f"{counts[outcome]:,} {words[outcome]}" for outcome in words if counts[outcome])
            or "no ids were given"
        )


def exit_code(counts: Counter[Outcome]) -> int:
    """Returns 1 if none of the tasks waited or a message could not be changed, else 0."""
    done = sum(count for outcome, count in counts.items() if outcome not in NOT_DONE)
    return int(bool(counts["unreadable"]) or (not done and bool(counts)))
