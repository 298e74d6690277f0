"""When the tasks of a batch are due, and until when they may run."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import pyarrow as pa

from celery_ext.delays.levels import DelayLevels
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.messages.row_errors import RowErrors
from celery_ext.spark.write.messages.values import EPOCH, Values, microseconds

#: The first and the last moment that a datetime can name, in µs since the epoch.
_FIRST_US, _LAST_US = (
    (each.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // timedelta(microseconds=1) for each in (datetime.min, datetime.max)
)


class Schedule:
    """Due times of one job, all counted from the moment when it began.

    Args:
        options: Of the job.
        levels: Its delay levels.
        base_ms: When it began, ms since the epoch.
        max_delay: Longest delay that the broker's options allow, in s; None for any.
    """

    def __init__(self, options: WriteOptions, levels: DelayLevels, base_ms: float, max_delay: float | None) -> None:
        self._options = options
        self._levels = levels
        self._base_us = round(base_ms * 1000)
        self._latest_us = _LAST_US if max_delay is None else min(_LAST_US, self._base_us + int(max_delay * 1e6))

    @property
    def has_delays(self) -> bool:
        """Whether the options alone give tasks a due time."""
        return bool(self._options.countdown or self._options.delay_level or self._options.spread)

    def due_us(self, columns: dict[str, Any], parts: Sequence[float], faults: RowErrors) -> list[int | None] | None:
        """Returns when each row is due, µs since the epoch, None for now; None when all are due now.

        Args:
            columns: Arrow arrays by name.
            parts: For each row, where in the window of ``spread`` it is to be, from 0 to 1.
            faults: Takes what is wrong.
        """
        due = self._delayed(columns, len(parts), faults)
        if due is None and not self.has_delays:
            return None
        due = due or [None] * len(parts)
        window_us = self._options.spread * 1e6
        if window_us:
            due = [
                (self._base_us if at is None else at) + int(part * window_us)
                for at, part in zip(due, parts, strict=True)
            ]
        for at, each in enumerate(due):
            if each is not None and each > self._latest_us:
                when = "the year 9999" if self._latest_us == _LAST_US else "the transport option max_delay allows"
                faults.add(
                    at, "", f"due {(each - self._base_us) / 1e6:.0f} s after the job began", f"later than {when}"
                )
                due[at] = None
        return due

    def expiries(self, columns: dict[str, Any], count: int, faults: RowErrors) -> list[int | None] | None:
        """Returns until when each row may run, µs since the epoch; None when there is no column and no option."""
        default = None if self._options.expires is None else self.expiry_us(self._options.expires)
        if "expires" not in columns:
            return None if default is None else [default] * count
        array = columns["expires"]
        if pa.types.is_timestamp(array.type):
            found = _nameable("expires", microseconds(array), faults)
        else:
            found = faults.parse("expires", Values(array).python, self._after)
        return [default if each is None else each for each in found]

    def expiry_us(self, given: float | datetime) -> int:
        """Returns an expiry that is a number of s from the job's begin, or a time, in µs since the epoch."""
        if isinstance(given, datetime):
            zoned = given if given.tzinfo else given.replace(tzinfo=EPOCH.tzinfo)
            return (zoned - EPOCH) // timedelta(microseconds=1)
        return self._after(given)

    def expiration(self, expiry_us: int) -> str:
        """Returns the message property that belongs to an expiry: ms from the begin of the job, as kombu writes it."""
        return f'"{max(expiry_us - self._base_us, 0) // 1000}"'

    def _delayed(self, columns: dict[str, Any], count: int, faults: RowErrors) -> list[int | None] | None:
        if "eta" in columns:
            return _nameable("eta", microseconds(columns["eta"]), faults)
        for name, parse in (("countdown", self._after_countdown), ("delay_level", self._after_level)):
            given = getattr(self._options, name)
            default = None if given is None else parse(given)
            if name in columns:
                said = Values(columns[name]).python
                found = faults.parse(name, said, parse)
                return [default if value is None else us for value, us in zip(said, found, strict=True)]
            if given is not None:
                return [default] * count
        return None

    def _after(self, seconds: float) -> int:
        us = self._base_us + round(seconds * 1e6) if math.isfinite(seconds) else _LAST_US + 1
        if not _FIRST_US <= us <= _LAST_US:
            raise ValueError("is not a number of seconds up to the year 9999")
        return us

    def _after_countdown(self, seconds: float) -> int | None:
        """Returns None for 0, which is no countdown. Source: celery.app.amqp.AMQP.as_task_v2."""
        return self._after(seconds) if seconds else None

    def _after_level(self, level: int) -> int | None:
        return self._after_countdown(self._levels.delay_s(level))


def _nameable(column: str, found: list[int | None], faults: RowErrors) -> list[int | None]:
    """Returns times, µs since the epoch, without those that a datetime cannot name."""
    for at, us in enumerate(found):
        if us is not None and not _FIRST_US <= us <= _LAST_US:
            faults.add(at, column, f"{us} µs since the epoch", "is no time from the year 1 to the year 9999")
            found[at] = None
    return found


def iso(us: int) -> str:
    """Returns a time, µs since the epoch, as JSON text in ISO 8601."""
    second, fraction = divmod(us, 1_000_000)
    return f'"{_second(second)}.{fraction:06}+00:00"' if fraction else f'"{_second(second)}+00:00"'


def in_ms(us: int) -> str:
    """Returns a time, µs since the epoch, in ms."""
    return f"{us // 1000}.{us % 1000:03}"


@lru_cache(maxsize=100_000)  # many tasks are due in the same second
def _second(second: int) -> str:
    return (EPOCH + timedelta(seconds=second)).replace(tzinfo=None).isoformat()
