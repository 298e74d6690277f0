"""Moments: as datetime, as ms or µs since the epoch, and as ISO 8601."""

from datetime import UTC, datetime, timedelta

#: Due times count from here.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def in_utc(moment: datetime) -> datetime:
    """Returns a moment with a zone. A moment without a zone is in UTC: workers read an eta in this way.

    Source: celery.utils.time.maybe_make_aware
    """
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def us_of(moment: datetime) -> int:
    """Returns a moment in whole µs since the epoch; without a zone it is in UTC."""
    return (in_utc(moment) - EPOCH) // _MICROSECOND


def ms_of(moment: datetime) -> float:
    """Returns a moment in ms since the epoch; without a zone it is in UTC.

    Every due time is made here, so that equal moments give the same number.
    """
    return us_of(moment) / 1000


def moment_of(due_ms: float) -> datetime:
    """Returns a due time, ms since the epoch, in UTC; the first or last datetime if the time is beyond it."""
    try:
        return EPOCH + timedelta(milliseconds=due_ms)
    except OverflowError:
        return (datetime.min if due_ms < 0 else datetime.max).replace(tzinfo=UTC)


def iso_of(due_ms: float) -> str | None:
    """Returns a due time, ms since the epoch, in ISO 8601 and UTC; None if it is beyond the first or last datetime."""
    try:
        return (EPOCH + timedelta(milliseconds=due_ms)).isoformat()
    except (OverflowError, ValueError):
        return None


def ms_text(us: int) -> str:
    """Returns a time in µs as text in ms."""
    return f"{us // 1000}.{us % 1000:03}"
