"""Schedules in words."""

from collections.abc import Collection, Sequence
from typing import Any

from celery.schedules import crontab, schedule

from celery_ext.delays import durations

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
#: So many times of a day are named one by one.
_TIMES = 6


def in_words(found: Any) -> str:
    """Returns the schedule of an entry in words, such as ``each day at 03:00 (UTC)``; of another class, its text."""
    if isinstance(found, crontab):
        return _crontab(found)
    if isinstance(found, schedule):
        return f"each {durations.in_words(found.run_every.total_seconds(), plain=True)}"
    return " ".join(str(found).split()).removeprefix("<").removesuffix(">")


def _crontab(found: crontab) -> str:
    days = _days(found)
    times = _times(sorted(found.hour), sorted(found.minute))
    is_of_day = times.startswith("at ") and not times.startswith("at :")
    said = f"{days or 'each day'} {times}" if is_of_day else f"{times}{days and ', ' + days}"
    return f"{said} ({found.tz})" if len(found.hour) < 24 or days else said


def _times(hours: Sequence[int], minutes: Sequence[int]) -> str:
    if len(hours) * len(minutes) <= _TIMES:
        return "at " + _joined([f"{hour:02}:{minute:02}" for hour in hours for minute in minutes])
    each_hour, each_minute = _each(hours, 24, "hour"), _each(minutes, 60, "minute")
    past = _joined([f":{minute:02}" for minute in minutes])
    if each_minute:
        return each_minute if each_hour == "each hour" else f"{each_minute} of hours {_spans(hours)}"
    return f"{each_hour} at {past}" if each_hour else f"at {past} of hours {_spans(hours)}"


def _days(found: crontab) -> str:
    """Returns the days of a crontab; empty for all."""
    parts = []
    if len(found.day_of_week) < 7:
        week = sorted(found.day_of_week, key=lambda day: (day - 1) % 7)  # from Monday on
        parts.append("Monday to Friday" if week == [1, 2, 3, 4, 5] else _joined([_DAYS[day] for day in week]))
    if len(found.day_of_month) < 31:
        parts.append(f"{'on ' if parts else ''}day {_spans(sorted(found.day_of_month))} of the month")
    if len(found.month_of_year) < 12:
        parts.append("in " + _joined([_MONTHS[month] for month in sorted(found.month_of_year)]))
    return " ".join(parts)


def _each(values: Sequence[int], of: int, unit: str) -> str:
    """Returns ``each 5 minutes`` where values have one distance all around; else nothing."""
    step = values[1] - values[0] if len(values) > 1 else 0
    if not step or of % step or list(values) != list(range(0, of, step)):
        return ""
    return f"each {unit}" if step == 1 else f"each {step} {unit}s"


def _spans(values: Sequence[int]) -> str:
    """Returns numbers with a dash for those that follow each other: ``8-18, 22``."""
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return _joined([f"{first}-{last}" if first != last else f"{first}" for first, last in spans])


def _joined(parts: Collection[str]) -> str:
    return ", ".join(parts)
