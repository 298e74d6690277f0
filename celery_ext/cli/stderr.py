"""Reports on stderr while a command works, and chooses the exit code that follows from it."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import click

from celery_ext.cli.output import escaped
from kombu_delayq import audit

#: Loggers whose warnings and errors a command shows.
LOGGERS = ("kombu_delayq", "celery_ext")
#: Longest summary of a command, in characters: click cuts those that are longer.
_WHOLE = 1000
#: Most different lines of one kind that are shown: half a million tasks may fail one by one.
LINES = 10


def print_stderr(text: str) -> None:
    """Writes a line to stderr."""
    click.echo(escaped(text), err=True)


class QuietGroup(click.Group):
    """The group of all commands.

    It ends a command quietly when nobody reads its output any more, as in ``… | head``. Its help lists the commands by
    what they do, each with its whole summary.

    Args:
        readers: Commands that only read. Without a reader of their output they are done: they end with 0, not 1.
        sections: Titles, and the names of the commands below each.
    """

    def __init__(
        self,
        *args: Any,
        readers: Collection[str] = (),
        sections: Mapping[str, Collection[str]] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._readers = readers
        self._sections = sections

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, section by section."""
        for title, names in self._sections.items():
            with formatter.section(title):
                rows = [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names]
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            names = [name for parameter in self.params for name in parameter.opts]
            if error.option_name not in names:
                raise
            where = f"{ctx.command_path} {error.option_name} … {ctx.invoked_subcommand}"
            raise click.UsageError(f"{error.option_name} comes before the command: {where}", error.ctx) from error
        except BrokenPipeError:
            if ctx.invoked_subcommand not in self._readers:
                raise  # click ends it quietly with 1
            # Python flushes the streams when it ends, and would report the broken pipe. Source: the note on SIGPIPE in
            # the documentation of Python's module signal.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (sys.stdout, sys.stderr):
                with suppress(BrokenPipeError):
                    stream.flush()
                    continue
                os.dup2(nowhere, stream.fileno())
            raise SystemExit(0) from None


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
