"""What a command has to complain about while it works: on stderr, and in the exit code."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import click

from celery_ext.cli.text import escaped

#: Loggers whose warnings and errors a command shows.
LOGGERS = ("kombu_delayq", "celery_ext")
#: How many different lines of one kind are shown; of half a million tasks each might have one.
LINES = 10


def complain(text: str) -> None:
    """Writes a line to stderr."""
    click.echo(escaped(text), err=True)


@contextmanager
def heard() -> Iterator[None]:
    """Writes what is logged as warning or error to stderr; after an error the exit code is 1."""
    handler = _Complaints(logging.WARNING)
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


class _Complaints(logging.Handler):
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
            complain(text)
        else:
            self._more[str(record.msg)] += 1

    def sum_up(self) -> None:
        for kind, count in self._more.items():
            complain(f"… and {count:,} more such as {kind!r}")
