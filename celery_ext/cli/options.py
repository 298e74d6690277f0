"""Options and arguments that several commands have, and their types: times, durations, ids."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import click

from celery_ext.delays import durations
from kombu_delayq.audit import ids_named
from kombu_delayq.errors import quoted
from kombu_delayq.message.due import ms_of

# Generic in newer versions of click only.
_ParamType: Any = click.ParamType


class Moment(NamedTuple):
    """A point in time as it was given.

    Attributes:
        ms: Ms since the epoch, or if relative, ms from now.
        relative: Whether ``ms`` counts from now.
    """

    ms: float
    relative: bool

    def at(self, now_ms: float) -> float:
        """Returns the time in ms since the epoch, given Redis's clock in ms."""
        return now_ms + self.ms if self.relative else self.ms


class MomentType(_ParamType):
    """Reads a ``Moment``: an ISO 8601 time, local where it has no zone, or a duration from now."""

    name = "time"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Moment:
        """Reads a moment, or ends the command with an error that says what is wrong."""
        if isinstance(value, Moment):
            return value
        text = str(value)
        try:
            return Moment(durations.parse(text) * 1000, True)
        except durations.TooLong as error:
            raise click.BadParameter(str(error), context, parameter) from error
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError, OSError):  # the last two, for years at the ends of the calendar
            raise click.BadParameter(
                f"{quoted(text)} is neither a time in ISO 8601, such as 2026-11-21T15:04 or 2026-11-21T15:04:05+01:00,"
                " nor a duration from now with its unit, such as 10m or 1h30m",
                context,
                parameter,
            ) from None
        return Moment(ms_of(moment), False)


class DurationType(_ParamType):
    """Reads a duration in s: a number, or one with units such as ``10m``."""

    name = "duration"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """Reads a duration, or ends the command with an error that says what is wrong."""
        if isinstance(value, float):
            return value
        text = str(value)
        try:
            return durations.parse(f"{text}s" if re.fullmatch(durations.NUMBER, text) else text)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error


MOMENT = MomentType()
DURATION = DurationType()


F = TypeVar("F", bound=Callable[..., Any])

#: In place of an id: the ids come from the standard input.
STDIN = "-"


def json_option(help: str = "Print JSON instead, one object a line.") -> Callable[[F], F]:  # noqa: A002
    """Adds ``--json``, the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def loglevel_option(help: str) -> Callable[[F], F]:  # noqa: A002
    """Adds ``--loglevel`` to a command that runs until it is ended."""
    levels = click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False)
    return click.option("-l", "--loglevel", type=levels, default="INFO", show_default=True, help=help)


def ids_argument(*, required: bool = True) -> Callable[[F], F]:
    """Adds the argument ``ID...``: a tuple ``ids`` for ``read_ids``."""
    return click.argument("ids", metavar="ID..." if required else "[ID]...", nargs=-1, required=required)


def read_ids(given: Sequence[str]) -> Iterator[str]:
    """Yields task ids as they come in.

    Args:
        given: Ids; ``-`` stands for those on the standard input, one a line.
    """
    for given_id in given:
        if given_id != STDIN:
            yield given_id
            continue
        for line in sys.stdin.buffer:
            identity = line.rstrip(b"\r\n")
            if identity:
                # As in arguments: bytes that are no UTF-8 become surrogates, which the store turns back.
                yield identity.decode(errors="surrogateescape")


def count_of_ids(given: Sequence[str]) -> int | None:
    """Returns how many ids there are; None if some come from the standard input."""
    return None if STDIN in given else len(given)


def ids_in_line(given: Sequence[str]) -> dict[str, Any]:
    """Returns the ids of a command for its line in the audit."""
    return ids_named((one for one in given if one != STDIN), more=STDIN in given)


def yes_option(command: F) -> F:
    """Adds ``--yes``, for ``confirm``."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(question: str, *, yes: bool, stdin_is_read: bool = False) -> None:
    """Asks before something destructive; a no ends the command with exit code 1.

    Args:
        question: Such as ``Cancel 3 tasks?``.
        yes: Whether ``--yes`` was given; then nobody is asked.
        stdin_is_read: Whether the command reads its ids from stdin, so that no answer can come from there.

    Raises:
        click.UsageError: Nobody can be asked.
    """
    if yes:
        return
    if stdin_is_read or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{question} Nobody can be asked here: give --yes to go ahead")
    click.confirm(question, abort=True, err=True)
