"""An eta means here what it means to the worker that gets the message."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery
from celery.exceptions import InvalidTaskError
from celery.worker.request import Request
from hypothesis import given
from hypothesis import strategies as st

from kombu_delayq.message.due import eta_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def worker_reads_us(eta: str, **conf: Any) -> int | None:
    """Returns the µs since the epoch at which Celery's own worker code would run a task, None if it refuses it."""
    app = Celery("worker", broker="memory://", set_as_current=False)
    app.conf.update(conf)

    @app.task(name="proj.task", shared=False)
    def task() -> None: ...

    headers = {"id": "i", "task": "proj.task", "eta": eta}
    # Only the message object is made up: the worker's Request needs a delivered one.
    message = Mock(headers=headers, delivery_info={}, properties={}, body=b"", content_type="", content_encoding="")
    try:
        request = Request(message, app=app, task=task, headers=headers, decoded=True, body=((), {}, {}))
    except InvalidTaskError:
        return None
    return (request.eta - EPOCH) // timedelta(microseconds=1)


def read_us(eta: str) -> int | None:
    due = eta_of({"headers": {"eta": eta, "id": "i"}, "properties": {}})
    return None if due is None else round(due.ms * 1000)


@pytest.mark.parametrize(
    "eta",
    [
        "2100-01-01T10:00:00",
        "2100-01-01T10:00:00.5",
        "2100-01-01T10:00:00.123456",
        "2100-01-01T10:00:00.123456789",
        "2100-01-01T10:00:00,25",
        "2100-01-01T10:00:00Z",
        "2100-01-01T10:00:00+00:00",
        "2100-01-01T10:00:00.000001-05:30",
        "2100-01-01T10:00:00+0530",
        "2100-01-01T10:00:00+05",
        "2100-01-01 10:00:00",
        "2100-01-01T10:00",
        "2100-01-01T10",
        "2100-01-01T24:00:00",
        "2100-01-01",
        "2100-01",
        "2100",
        "21000101",
        "21000101T100000Z",
        "20210101T1000",
        "2100-W01-1",
        "2100W011T10:00:00",
        "2100-W01",
        "2100-032",
        "2100032T101112.25",
        "soon",
        "2100-02-30T00:00:00",
        "2100-01-01T25:00:00",
    ],
)
def test_each_form_of_an_eta_means_what_the_worker_takes_it_for(eta: str) -> None:
    """Every way to write an eta that the worker reads gives the worker's moment, and what it refuses gives none."""
    assert read_us(eta) == worker_reads_us(eta)


@pytest.mark.parametrize(
    "conf", [{}, {"timezone": "America/New_York"}, {"timezone": "Asia/Tokyo", "enable_utc": False}]
)
def test_a_naive_eta_is_utc_whatever_the_workers_time_zone(conf: dict[str, Any]) -> None:
    """An eta without a zone is UTC, to a worker of whatever ``timezone`` and ``enable_utc`` and to the transport."""
    eta = "2100-01-01T10:00:00.5"
    assert worker_reads_us(eta, **conf) == 4102480800_500000
    assert read_us(eta) == 4102480800_500000


ZONES = st.one_of(st.none(), st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))))


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)),
    ZONES,
    st.sampled_from(["auto", "hours", "minutes", "seconds", "milliseconds", "microseconds"]),
    st.sampled_from(["T", " "]),
    st.booleans(),
)
def test_every_isoformat_of_python_means_what_the_worker_takes_it_for(
    moment: datetime, zone: timezone | None, timespec: str, separator: str, basic: bool
) -> None:
    """Any text that ``datetime.isoformat`` makes, with or without its punctuation, gives the worker's moment."""
    eta = moment.replace(tzinfo=zone).isoformat(separator, timespec)
    if basic and zone is None:
        eta = eta.replace("-", "").replace(":", "")
    assert read_us(eta) == worker_reads_us(eta)
