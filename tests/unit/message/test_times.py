"""Moments as datetime, as ms and µs since the epoch, and in ISO 8601."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kombu_delayq.message.due import eta_of
from kombu_delayq.message.times import EPOCH, iso_of, moment_of, ms_of, us_of

# Until then a float of ms tells one µs from the next.
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2248, 1, 1), timezones=st.just(UTC))


@given(MOMENTS)
def test_ms_come_back_as_the_moment(moment: datetime) -> None:
    """Ms since the epoch lose nothing of a moment, and are the due time of a task with this eta."""
    assert moment_of(ms_of(moment)) == moment
    assert iso_of(ms_of(moment)) == moment.isoformat()
    due = eta_of({"headers": {"task": "t", "eta": moment.isoformat()}})
    assert due is not None
    assert due.ms == ms_of(moment)


@given(st.datetimes(timezones=st.just(UTC)))
def test_us_are_exact(moment: datetime) -> None:
    """Each datetime is a whole number of µs since the epoch."""
    assert EPOCH + timedelta(microseconds=us_of(moment)) == moment


def test_a_moment_without_a_zone_is_in_utc() -> None:
    """Without a zone a moment counts as workers count an eta, and with one it is what it says."""
    assert us_of(datetime(1970, 1, 1, 0, 0, 1)) == 1_000_000
    assert ms_of(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0


@pytest.mark.parametrize(("ms", "nearest"), [(1e300, datetime.max), (-1e300, datetime.min), (2.6e14, datetime.max)])
def test_what_no_datetime_names(ms: float, nearest: datetime) -> None:
    """A due time beyond the calendar has no ISO 8601, and its moment is the end of the calendar."""
    assert moment_of(ms) == nearest.replace(tzinfo=UTC)
    assert iso_of(ms) is None


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_has_no_iso(ms: float) -> None:
    """A damaged score in Redis is shown as it is instead."""
    assert iso_of(ms) is None
