"""Moments: as datetime, as ms or µs since the epoch, and as ISO 8601."""

from datetime import UTC, datetime, timedelta

#: From where due times count.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def in_utc(moment: datetime) -> datetime:
    """Returns a moment with its zone; without one it is in UTC, as workers take an eta.

    Source: celery.utils.time.maybe_make_aware
    """
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def us_of(moment: datetime) -> int:
    """Returns a moment in whole µs since the epoch; without a zone it is in UTC."""
    return (in_utc(moment) - EPOCH) // _MICROSECOND


def ms_of(moment: datetime) -> float:
    """Returns a moment in ms since the epoch; without a zone it is in UTC.

    All due times are made here, so that two of one moment are the same number.
    """
    return us_of(moment) / 1000


def moment_of(due_ms: float) -> datetime:
    """Returns a due time, ms since the epoch, in UTC; the first or last datetime where none can name it."""
    try:
        return EPOCH + timedelta(milliseconds=due_ms)
    except OverflowError:
        return (datetime.min if due_ms < 0 else datetime.max).replace(tzinfo=UTC)


def iso_of(due_ms: float) -> str | None:
    """Returns a due time, ms since the epoch, in ISO 8601 and UTC; None where no datetime can name it."""
    try:
        return (EPOCH + timedelta(milliseconds=due_ms)).isoformat()
    except (OverflowError, ValueError):
        return None
