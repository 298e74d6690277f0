"""Prints what commands found, as text that is safe for a terminal, and on stderr what went wrong meanwhile."""

import json
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import click

from celery_ext.delays import DelayChain, in_words
from celery_ext.waiting import DelayedTask
from kombu_delayq import audit
from kombu_delayq.message import iso_of

#: Returns a text in red: something is wrong or late; in yellow: it deserves a look; in green: all is well.
bad, warning, good = (partial(click.style, fg=colour) for colour in ("red", "yellow", "green"))


def choice(*, refused: bool) -> bool | None:
    """Returns whether a command prints colours; None if that is so on a terminal alone.

    Source: https://no-color.org, https://force-color.org; where both are set, Python itself has none either.
    """
    if refused or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def width(text: str) -> int:
    """Returns how many characters of a text are seen."""
    return len(click.unstyle(text) if "\x1b" in text else text)


def shortened(text: str, length: int) -> str:
    """Returns a text of at most ``length`` characters, with an ellipsis where the end is missing.

    A text that is coloured as a whole stays so; of others the colours go.
    """
    if width(text) <= length:
        return text
    plain = click.unstyle(text)
    cut = f"{plain[: length - 1]}…"
    return text.replace(plain, cut) if plain in text else cut


#: Fewest characters of the last column of a table.
LAST_COLUMN = 12
#: Columns of a listing, and the most characters of a cell.
LISTING_HEAD = ("DUE", "TASK", "ID", "QUEUE", "RETRIES", "ARGUMENTS")
#: The column of those that wait in the journal, which stands before the last where there are any.
TIER_HEAD = "TIER"
CELL_WIDTH = 100
ARGUMENTS_WIDTH = 40
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def escaped(text: str) -> str:
    """Returns a text for the terminal, with Python's escapes for control characters and the like."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def number_of(count: int, one: str, many: str = "") -> str:
    """Returns a number of things as text: ``1 message``, ``1,204 messages``; by default ``many`` has an s more."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def size(count: float) -> str:
    """Returns a number of bytes as text: ``1.24 MB``."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {_UNITS[unit]}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Sets rows in columns, those of ``right``, counted from 0, to the right. Colours have no width."""
    widths = [max(map(width, column)) for column in zip(head, *rows, strict=True)]
    return ["  ".join(_cells(row, widths, right)).rstrip() for row in [head, *rows]]


def _cells(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> Iterator[str]:
    for at, text in enumerate(row):
        blanks = " " * (widths[at] - width(text))
        yield blanks + text if at in right else text + blanks


def fit_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    *,
    short: Sequence[Sequence[str]] | None = None,
) -> list[str]:
    """Sets rows in columns. Where they are too long for a terminal, their last cells lose their ends.

    Other cells, such as an id, stay whole. Elsewhere than at a terminal nothing is cut.

    Args:
        head: The names of the columns.
        rows: The cells.
        right: As of ``table``.
        short: The rows to show where the others are too long.
    """
    lines = table(head, rows, right)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if not columns or max(map(width, lines)) <= columns:
        return lines
    if short is not None:
        return fit_table(head, short, right)
    left = columns - sum(max(map(width, column)) + 2 for column in list(zip(head, *rows, strict=True))[:-1])
    return table(head, [[*row[:-1], shortened(row[-1], max(left, LAST_COLUMN))] for row in rows], right)


def local_time(iso: str) -> str:
    """Returns an ISO 8601 moment as text in the local time zone."""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def when(ms: float, now_ms: float) -> str:
    """Returns a moment as text, in the local time zone and from now: ``2026-11-21 15:04:05 CET (in 3h 12m)``."""
    try:
        return f"{local_time(iso_of(ms) or '')} ({in_words((ms - now_ms) / 1000)})"
    except (ValueError, OverflowError, OSError):  # the score of a damaged entry may be any number
        return f"{ms:.0f} ms since 1970"


def when_due(task: DelayedTask, now_ms: float) -> str:
    """Returns when a message is due, as ``when``; in red if it is overdue."""
    due_ms = task.message.due_ms
    return bad(when(due_ms, now_ms)) if due_ms < now_ms else when(due_ms, now_ms)


def json_line(value: Any) -> str:
    """Returns a value as one line of JSON. A value that JSON does not have, such as bytes, becomes its ``repr``."""
    try:
        return json.dumps(value, default=repr, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # such as for a key that is no text, or NaN
        if isinstance(value, dict):
            return f"{{{', '.join(f'{json_line(str(name))}: {json_line(item)}' for name, item in value.items())}}}"
        return json.dumps(repr(value))


def listing(tasks: Sequence[DelayedTask], now_ms: float) -> list[str]:
    """Returns the lines of a listing. Where one of the tasks waits in the journal, a column says who has each."""
    head, rows = [*LISTING_HEAD], [row(task, now_ms) for task in tasks]
    if any(task.elsewhere for task in tasks):
        head.insert(-1, TIER_HEAD)
        rows = [[*cells[:-1], task.tier, cells[-1]] for cells, task in zip(rows, tasks, strict=True)]
    return fit_table(head, rows, right={4})


def row(task: DelayedTask, now_ms: float) -> list[str]:
    """Returns the cells of a listing, one for each of ``LISTING_HEAD``."""
    chain = DelayChain.read(task.delay_chain)
    return [
        when_due(task, now_ms),
        cell(task_name(task)),
        cell(task.id),
        cell(task.queue),
        str(task.retries) if chain is None else f"{task.retries}/{len(chain)}",
        cell(task.arguments, ARGUMENTS_WIDTH),
    ]


def task_name(task: DelayedTask) -> str:
    """Returns the name of the task, or ``(lost)`` or ``(no task)``."""
    if task.name is not None:
        return str(task.name)
    return "(lost)" if task.message.body is None else "(no task)"


def cell(text: str, length: int = CELL_WIDTH) -> str:
    """Returns a text for a cell of a table: escaped, and cut to a length."""
    return shortened(escaped(text[: length + 1]), length)


#: Loggers whose warnings and errors a command shows.
LOGGERS = ("kombu_delayq", "celery_ext")
#: Most different lines of one kind that are shown: half a million tasks may fail one by one.
LINES = 10


def print_stderr(text: str) -> None:
    """Writes a line to stderr."""
    click.echo(escaped(text), err=True)


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Writes warnings and errors of our loggers to stderr; after an error the exit code is 1."""
    handler = _StderrHandler(logging.WARNING)
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
        handler.sum_up()
    if handler.failed:
        raise click.exceptions.Exit(1)


@contextmanager
def audit_file(path: str) -> Iterator[None]:
    """Appends the lines of the audit to a file, with their times."""
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"the audit cannot be written: {error}") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    level = audit.logger.level
    audit.logger.addHandler(handler)
    audit.logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        audit.logger.removeHandler(handler)
        audit.logger.setLevel(level)
        handler.close()


class _StderrHandler(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.failed = False
        self._shown: dict[str, set[str]] = {}
        self._more: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        self.failed = self.failed or record.levelno >= logging.ERROR
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            text += f": {record.exc_info[1]}"
        shown = self._shown.setdefault(str(record.msg), set())
        if text in shown:
            return
        if len(shown) < LINES:
            shown.add(text)
            print_stderr(text)
        else:
            self._more[str(record.msg)] += 1

    def sum_up(self) -> None:
        for kind, count in self._more.items():
            print_stderr(f"… and {count:,} more such as {kind!r}")
