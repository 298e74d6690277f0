"""When the tasks of a batch are due, and when they expire."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.write.texts import joined
from celery_ext.spark.write.values import BatchRows, microseconds
from kombu_delayq.message import us_of

if TYPE_CHECKING:
    from celery_ext.delays import DelayLevels
    from celery_ext.spark.options import WriteOptions

#: The first and the last time that a datetime can have, in µs since the epoch.
_FIRST_US, _LAST_US = us_of(datetime.min), us_of(datetime.max)


class Schedule:
    """Due times and expiries of one job. Delays count from the moment when the job began.

    In a promotion each row must have an eta, and its relative expiry counts from there.

    Args:
        options: Options of the job.
        levels: Delay levels of the job.
        base_ms: When the job began, ms since the epoch.
        max_delay: Longest delay that the transport option allows, in s; None for no limit.
        promotes: Whether the job promotes rows of a table.
    """

    def __init__(
        self,
        options: WriteOptions,
        levels: DelayLevels,
        base_ms: float,
        max_delay: float | None,
        promotes: bool = False,
    ) -> None:
        self._options = options
        self._promotes = promotes
        self._levels = levels
        self._base_us = round(base_ms * 1000)
        self._latest_us = _LAST_US if max_delay is None else min(_LAST_US, self._base_us + int(max_delay * 1e6))

    def due_us(self, rows: BatchRows, parts: pa.Array | None) -> pa.Array | None:
        """Returns when each row is due.

        Args:
            rows: The rows of a batch, which get the errors of their due times.
            parts: Place of each row in the window of the option ``spread``, from 0 to 1; None without the option.

        Returns:
            Times in µs since the epoch, NULL for a row that is due now; None instead of the column when all rows are.
        """
        due = self._due_without_spread(rows)
        if parts is not None:
            window_us = min(self._options.spread * 1e6, _LAST_US - _FIRST_US)
            after_us = pc.cast(pc.multiply(parts, window_us), pa.int64(), safe=False)
            due = pc.add(self._base_us if due is None else pc.coalesce(due, self._base_us), after_us)
        return None if due is None else self._not_too_late(due, rows)

    def expiries_us(self, rows: BatchRows) -> pa.Array | None:
        """Returns when each row expires.

        Args:
            rows: The rows of a batch, which get the errors of their expiries.

        Returns:
            Times in µs since the epoch, NULL for a row without an expiry; None instead of the column when there is
            neither the column nor the option.
        """
        option, column = self._options.expires, rows.columns.get("expires")
        if option is None and column is None:
            return None
        defaults = _times([None if option is None else self.expiry_us(option)] * rows.count)
        if not isinstance(option, datetime):
            defaults = self._after_eta(defaults, rows)
        if column is None:
            return defaults
        if pa.types.is_timestamp(column.array.type):
            expiries = _without_impossible("expires", rows)
        else:
            expiries = self._after_eta(_times(rows.parse("expires", column.python, self._after)), rows)
        return pc.coalesce(expiries, defaults)

    def expiry_us(self, expires: float | datetime) -> int:
        """Returns an expiry in µs since the epoch. expires: A time, or s after the job began."""
        return us_of(expires) if isinstance(expires, datetime) else self._after(expires)

    def expirations(self, expiries_us: pa.Array) -> pa.StringArray:
        """Returns the message property of each expiry as JSON text: ms after the job began, as kombu writes it."""
        after_us = pc.max_element_wise(pc.subtract(expiries_us, self._base_us), 0, skip_nulls=False)
        return joined(['"', pc.divide(after_us, 1000).cast(pa.string()), '"'], len(expiries_us))

    def _due_without_spread(self, rows: BatchRows) -> pa.Array | None:
        if "eta" in rows.columns:
            due = _without_impossible("eta", rows)
            if self._promotes:
                for row in _where(pc.is_null(due)):
                    rows.add_error(row, None, "is not the due time that each row of a promotion has", "eta")
            return due
        for name, parse in (("countdown", self._after_countdown), ("delay_level", self._after_level)):
            option = getattr(self._options, name)
            default = None if option is None else parse(option)
            if name in rows.columns:
                delays = rows.columns[name].python
                due = rows.parse(name, delays, parse)
                return _times(default if delay is None else us for delay, us in zip(delays, due, strict=True))
            if default is not None:
                return pa.repeat(default, rows.count)
        return None

    def _after_eta(self, expiries: pa.Array, rows: BatchRows) -> pa.Array:
        """Returns relative expiries; in a promotion from each row's eta, unless the job began later."""
        if not self._promotes:
            return expiries
        eta = pc.coalesce(microseconds(rows.columns["eta"].array), 0)
        more_us = pc.max_element_wise(pc.subtract(eta, self._base_us), 0)
        return pc.min_element_wise(pc.add(expiries, more_us), _LAST_US, skip_nulls=False)

    def _not_too_late(self, due: pa.Array, rows: BatchRows) -> pa.Array:
        late = pc.coalesce(pc.greater(due, self._latest_us), False)
        if not late.true_count:
            return due
        limit = "the year 9999" if self._latest_us == _LAST_US else "the transport option max_delay allows"
        for row in _where(late):
            value = f"due {(due[row].as_py() - self._base_us) / 1e6:.0f} s after the job began"
            rows.add_error(row, value, f"later than {limit}")
        return pc.if_else(late, None, due)

    def _after(self, seconds: float) -> int:
        us = self._base_us + round(seconds * 1e6) if math.isfinite(seconds) else _LAST_US + 1
        if not _FIRST_US <= us <= _LAST_US:
            raise ValueError("is not a number of seconds up to the year 9999")
        return us

    def _after_countdown(self, seconds: float) -> int | None:
        """Returns the due time; None for 0, which is no countdown. Source: celery.app.amqp.AMQP.as_task_v2."""
        return self._after(seconds) if seconds else None

    def _after_level(self, level: int) -> int | None:
        return self._after_countdown(self._levels.delay_s(level))


def _times(times_us: Iterable[int | None]) -> pa.Array:
    return pa.array(list(times_us), pa.int64())


def _where(array: pa.Array) -> list[int]:
    """Returns the numbers of the rows that are true."""
    rows: list[int] = pc.indices_nonzero(array).to_pylist()
    return rows


def _without_impossible(column: str, rows: BatchRows) -> pa.Array:
    """Returns times in µs since the epoch; NULL, with an error, for each that a datetime cannot have."""
    times_us = microseconds(rows.columns[column].array)
    is_wrong = pc.coalesce(pc.or_(pc.less(times_us, _FIRST_US), pc.greater(times_us, _LAST_US)), False)
    if not is_wrong.true_count:
        return times_us
    for row in _where(is_wrong):
        value = f"{times_us[row]} µs since the epoch"
        rows.add_error(row, value, "is not a time from the year 1 to the year 9999", column)
    return pc.if_else(is_wrong, None, times_us)
