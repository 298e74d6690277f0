"""Shows how far a command is, says what became of the tasks whose ids it got, and chooses the exit code."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any, TypeVar

import click

from celery_ext.cli.options import STDIN, count_of_ids
from celery_ext.cli.output import escaped, json_line, print_stderr
from celery_ext.waiting import BulkOutcome, Outcome
from kombu_delayq.audit import NOT_DONE, audited, ids_named

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


#: Each outcome in words, of one task or of many.
WORDS: Mapping[Outcome | BulkOutcome, str] = {
    "cancelled": "cancelled",
    "chain_ended": "not waiting, but the delay chain takes no further step",
    "rescheduled": "rescheduled",
    "transferred": "sent to be run",
    "not_delayed": "not waiting",
    "dead_letter": "not waiting, but a dead letter: drop it there, or a replay runs it with all its retries",
    "unreadable": "not changed, because the message cannot be rewritten",
    "too_long": "not changed, because max_delay forbids the new time",
    "gone": "no longer there: come due, or changed meanwhile",
}


def summed_up(counts: Counter[Any], words: Mapping[Any, str]) -> str:
    """Returns how often each outcome came, as text; empty without any."""
    return ", ".join(f"{counts[outcome]:,} {words[outcome]}" for outcome in words if counts[outcome])


def act_on_ids(
    action: str,
    ids: Sequence[str],
    outcomes: Iterable[tuple[str, Outcome]],
    label: str,
    *,
    as_json: bool,
    words: Mapping[Any, str] = WORDS,
    **what: Any,
) -> Counter[Outcome]:
    """Prints what became of each task, and leaves a line in the audit. Returns how often each outcome came.

    For ids from the standard input it prints only totals, unless it prints JSON. Reading an outcome does the work.
    """
    from_stdin = STDIN in ids
    named = ids_named((one for one in ids if one != STDIN), more=from_stdin)
    in_sum = from_stdin and not as_json
    with audited(action, {**named, **what}) as counts:
        for identity, outcome in with_progress(outcomes, label, count_of_ids(ids), printing=not in_sum):
            counts[outcome] += 1
            if as_json:
                click.echo(json_line({"id": identity, "outcome": outcome}))
            elif not in_sum:
                write = print_stderr if outcome in NOT_DONE else click.echo
                write(f"{escaped(identity)}: {words[outcome]}")
        if in_sum:
            click.echo(summed_up(counts, words) or "no ids were given")
    return counts


def exit_code(counts: Counter[Outcome]) -> int:
    """Returns 1 if none of the tasks waited or a message could not be changed, else 0."""
    done = sum(count for outcome, count in counts.items() if outcome not in NOT_DONE)
    return int(bool(counts["unreadable"]) or (not done and bool(counts)))
