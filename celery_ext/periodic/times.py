"""When an entry runs: computed by Celery's own schedule classes, as its beat would find out."""

from collections.abc import Iterator
from datetime import datetime, timedelta, tzinfo
from itertools import takewhile
from math import ceil
from typing import Any

from celery.schedules import crontab, schedule, solar
from celery.utils.time import timezone

from kombu_delayq.message import EPOCH, moment_of

#: Most runs of an entry that are made up for, with ``missed="all"``.
MOST_MISSED = 1000
#: How often beat would look before it sends; more means that the schedule never comes.
_MOST_LOOKS = 1000
#: The first stretch of time in which the latest of the missed runs are looked for, in ms: an hour.
_FIRST_STRETCH_MS = 3_600_000
_MS = timedelta(milliseconds=1)


class NeverComes(ValueError):
    """A schedule has no next run."""


def next_ms(of: Any, last_ms: int, zone: tzinfo) -> int:
    """Returns when an entry runs after a run, in whole ms since the epoch.

    Beat asks a schedule after each run how long to wait, and asks again at the end of that time. So does this function,
    at moments of its own choice: it never waits.

    Args:
        of: A schedule of Celery's, or of any class with ``remaining_estimate``.
        last_ms: Time of the run before, ms since the epoch.
        zone: The time zone of the app.

    Raises:
        NeverComes: There is no further run.

    Source: celery.beat.Scheduler.tick
    """
    # django-celery-beat's crontabs have one of their own, and other classes may have its name.
    zone = timezone.get_timezone(vars(of).get("tz") or zone)
    last = moment_of(last_ms).astimezone(zone)
    at_ms, asked = last_ms, object.__new__(type(of))
    vars(asked).update(vars(of))  # ``copy`` would leave out the app, and with it the time zone
    for _ in range(_MOST_LOOKS):
        asked.nowfun = lambda at_ms=at_ms: moment_of(at_ms).astimezone(zone)
        try:
            left = asked.remaining_estimate(last)
        except (RuntimeError, OverflowError, ValueError) as error:  # such as of February 30
            raise NeverComes(f"the schedule {of!r} never comes: {error}") from error
        if left <= timedelta():
            if at_ms > last_ms:
                return at_ms
            if isinstance(of, crontab) and left:  # in an hour that is repeated: it is the run of the first such hour
                last = (moment_of(at_ms) + left).astimezone(zone)
                continue
            left = _MS
        at_ms += ceil(left / _MS)
    raise NeverComes(f"the schedule {of!r} never comes")


def runs_after(of: Any, last_ms: int, zone: tzinfo) -> Iterator[int]:
    """Yields the times of the runs after one, without an end; the arguments and errors are those of ``next_ms``."""
    while True:
        last_ms = next_ms(of, last_ms, zone)
        yield last_ms


def missed_runs(of: Any, last_ms: int, now_ms: int, zone: tzinfo, most: int) -> list[int]:
    """Returns the latest of the runs after ``last_ms`` that are past, at most ``most``, in order.

    Args:
        of: As of ``next_ms``.
        last_ms: Time of the last run, ms since the epoch.
        now_ms: The present.
        zone: As of ``next_ms``.
        most: How many at most.
    """

    def between(from_ms: int) -> list[int]:
        return list(takewhile(lambda at_ms: at_ms <= now_ms, runs_after(of, from_ms, zone)))[-most:]

    if hasattr(of, "clocked_time"):  # each moment after it is another run to ``next_ms``
        return [at_ms for at_ms in (next_ms(of, last_ms, zone),) if at_ms <= now_ms]
    if _is_period(of):
        step_ms = of.run_every / _MS
        skipped = max(int((now_ms - last_ms) / step_ms) - most, 0)
        return between(last_ms + round(skipped * step_ms))
    if isinstance(of, (crontab, solar)):  # whose times do not depend on the run before
        stretch_ms = _FIRST_STRETCH_MS
        while last_ms < now_ms - stretch_ms:
            if len(found := between(now_ms - stretch_ms)) >= most:
                return found
            stretch_ms *= 4
    return between(last_ms)


def run_before(of: Any, last_ms: int, now_ms: int) -> int:
    """Returns a time at or before the present from which a schedule goes on; with a period, in step with ``last_ms``.

    Args:
        of: As of ``next_ms``.
        last_ms: Time of a run to come, ms since the epoch.
        now_ms: The present.
    """
    if not _is_period(of):
        return now_ms
    step_ms: float = of.run_every / _MS
    return last_ms - round(ceil((last_ms - now_ms) / step_ms) * step_ms)


def _is_period(of: Any) -> bool:
    return type(of) is schedule and not of.relative


def whole_ms(moment: datetime) -> int:
    """Returns a moment in whole ms since the epoch, rounded up: no run comes too early."""
    return ceil((moment - EPOCH) / _MS)
