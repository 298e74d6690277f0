"""Types of the commands' options for times and durations."""

import re
from datetime import datetime
from typing import Any, NamedTuple

import click

from celery_ext.delays import durations
from kombu_delayq.errors import quoted
from kombu_delayq.message.times import ms_of

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
