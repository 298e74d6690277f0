"""When a message is due, and moments as numbers."""

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kombu_delayq.errors import InvalidDelay
from kombu_delayq.message.due import Due, due_of, eta_of, iso_of, moment_of, ms_of, us_of
from kombu_delayq.message.fields import Message
from tests.support.messages import ETA, ETA_AT, ETA_MS, plain_message, task_message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def with_headers(**headers: Any) -> Message:
    return {"body": "", "headers": {"task": "proj.task", **headers}, "properties": {"delivery_tag": "tag"}}


def with_delay(delay: object, **more: Any) -> Message:
    return {"body": "", "headers": {}, "properties": {"delivery_tag": "tag", "DelaySeconds": delay}, **more}


def test_eta_of_a_protocol_2_task_is_its_due_time() -> None:
    """A task that Celery publishes with an eta is due then, to the µs, under its task id."""
    assert due_of(task_message(eta=ETA_AT, task_id="some id")) == Due(ETA_MS, False, "some id")


def test_task_without_eta_is_due_at_once() -> None:
    """A task without eta and countdown has no due time."""
    assert due_of(task_message()) is None


def test_past_eta_is_told_as_it_is() -> None:
    """An eta in the past, even before 1970, is a due time in the past, which the caller compares with the clock."""
    due = eta_of(with_headers(eta="1969-12-31T23:59:59+00:00", id="i"))
    assert due == Due(-1000.0, False, "i")


def redis_clock_ms(moment_us: int) -> float:
    """What ``lua/include/clock.lua`` makes of Redis's TIME, in the same arithmetic."""
    seconds, microseconds = divmod(moment_us, 10**6)
    return seconds * 1000.0 + microseconds / 1000.0


@given(st.datetimes(datetime(1970, 1, 2), datetime(2109, 1, 1), timezones=st.timezones()))
def test_due_time_is_not_before_the_microsecond_of_the_eta(eta: datetime) -> None:
    """By Redis's clock a task is due in exactly the µs of its eta, not in the one before, in whatever zone it is."""
    due = eta_of(with_headers(eta=eta.isoformat(), id="i"))
    eta_us = (eta.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    assert due is not None
    assert redis_clock_ms(eta_us - 1) < due.ms <= redis_clock_ms(eta_us)


@pytest.mark.parametrize(
    "eta",
    [
        *(None, "", "2100-13-01T00:00:00", "2100-01-01 at noon", "10000-01-01T00:00:00", "99999999999999", "NaN"),
        *(4102444800, 4102444800.5, True, ["2100-01-01"], {"at": "2100-01-01"}, b"2100-01-01"),
    ],
)
def test_an_eta_that_is_no_date_is_none(eta: object) -> None:
    """A message whose eta is no date as text goes its stock way: the worker that gets it says what is wrong."""
    assert eta_of(with_headers(eta=eta, id="i")) is None


@given(st.text(max_size=40))
def test_no_text_in_eta_raises(eta: str) -> None:
    """Whatever text an eta is, reading it gives a finite due time or none, and never an error."""
    due = eta_of(with_headers(eta=eta, id="i"))
    assert due is None or math.isfinite(due.ms)


@pytest.mark.parametrize(
    "eta", ["9999-12-31T23:59:59.999999", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"]
)
def test_the_ends_of_the_calendar_are_due_times(eta: str) -> None:
    """An eta in the first or the last year, also where UTC would leave the calendar, is a finite due time."""
    due = eta_of(with_headers(eta=eta))
    assert due is not None
    assert math.isfinite(due.ms)


@pytest.mark.parametrize("task_id", [None, 7, ["a"]])
def test_a_task_id_that_is_no_text_is_none(task_id: object) -> None:
    """An id that is no text does not identify the message; the eta counts all the same."""
    assert eta_of(with_headers(eta=ETA, id=task_id)) == Due(ETA_MS, False, None)


@pytest.mark.parametrize(("delay", "ms"), [(1, 1000.0), (0.5, 500.0), ("2", 2000.0), ("1.25", 1250.0), (True, 1000.0)])
def test_delay_seconds_is_a_due_time_from_the_arrival(delay: object, ms: float) -> None:
    """``DelaySeconds`` of a plain kombu producer, a number or its text, counts from the arrival at Redis."""
    assert due_of(plain_message(DelaySeconds=delay)) == Due(ms, True, None)


@pytest.mark.parametrize("delay", [None, 0, 0.0, "0", -1, -0.001])
def test_no_positive_delay_seconds_is_at_once(delay: object) -> None:
    """``DelaySeconds`` that is missing, zero or negative delays nothing."""
    assert due_of(with_delay(delay)) is None


@pytest.mark.parametrize(
    "delay", ["inf", "nan", "-inf", math.inf, math.nan, -math.inf, 1e300, "soon", "", [], {}, b"x"]
)
def test_delay_seconds_that_is_no_number_is_refused(delay: object) -> None:
    """``DelaySeconds`` that is no finite number of seconds raises an error that shows it."""
    with pytest.raises(InvalidDelay) as refused:
        due_of(with_delay(delay))
    assert repr(delay) in str(refused.value)


def test_delay_seconds_of_a_redelivered_message_has_passed() -> None:
    """A message on its way back to its queue has had its ``DelaySeconds``, and is not delayed again."""
    assert due_of(with_delay(60, redelivered=True)) is None


def test_eta_goes_before_delay_seconds() -> None:
    """A task with an eta and ``DelaySeconds`` is due at its eta."""
    message = with_headers(eta=ETA, id="i")
    message["properties"]["DelaySeconds"] = "not even a number"
    assert due_of(message) == Due(ETA_MS, False, "i")


def test_delay_seconds_of_a_task_without_eta_counts() -> None:
    """A task without an eta may be delayed by ``DelaySeconds``, under its task id."""
    message = task_message(task_id="some id", DelaySeconds=3)
    assert due_of(message) == Due(3000.0, True, "some id")


def test_eta_of_a_redelivered_task_is_still_told() -> None:
    """A redelivered task keeps its eta; whether that has passed is for the clock to say."""
    assert due_of({**with_headers(eta=ETA, id="i"), "redelivered": True}) == Due(ETA_MS, False, "i")


@pytest.mark.parametrize("headers", [None, {}])
def test_a_message_without_headers_is_at_once(headers: object) -> None:
    """A message of another producer, without headers, has no eta."""
    assert eta_of({"body": "x", "headers": headers, "properties": {"delivery_tag": "t"}}) is None
    assert eta_of({"body": "x", "properties": {"delivery_tag": "t"}}) is None
    assert eta_of({"body": None, "headers": headers, "properties": None}) is None


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
