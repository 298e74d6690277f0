"""When tasks are due and expire: all counted from one moment, the begin of their job."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from celery_ext.spark.write.batch import BatchMessages
from kombu_delayq.store.types import Offer
from tests.support.spark.making import batch_of, errors_of, made_of, offers_of, seen

BASE = datetime(2044, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
BASE_MS = BASE.timestamp() * 1000


def made(columns: dict[str, Any], **how: Any) -> BatchMessages:
    return made_of(batch_of(**columns), base_ms=BASE_MS, **how)


def offers(columns: dict[str, Any], **how: Any) -> list[Offer]:
    rows = max(len(each) for each in columns.values())
    # Messages come by due time; here their ids tell the rows.
    found = offers_of(made({**columns, "task_id": [f"{at:06}" for at in range(rows)]}, **how))
    return sorted(offer for _, offer in found)


def delays(columns: dict[str, Any], **how: Any) -> list[float | None]:
    """Returns for each row the s from the begin to its due time, and checks that its eta says the same."""
    found: list[float | None] = []
    for offer in offers(columns, **how):
        eta = json.loads(offer.body)["headers"]["eta"]
        found.append(float(offer.due) / 1000 - BASE.timestamp() if offer.due else None)
        assert (eta is None) == (offer.due == "")
        if eta is not None:
            assert datetime.fromisoformat(eta).timestamp() * 1000 == pytest.approx(float(offer.due), abs=0.001)
            assert eta.endswith("+00:00")
    return [each if each is None else round(each, 5) for each in found]


def test_due_times_do_not_depend_on_the_attempt() -> None:
    """Two attempts of a job make the same messages, but for the process that each names as their origin."""
    columns = {"countdown": [1.5], "expires": [60]}
    [first], [second] = offers(columns), offers(columns)
    assert first[:3] == second[:3]
    assert seen(json.loads(first.body)) == seen(json.loads(second.body))


def test_a_spread_distributes_tasks_over_its_window() -> None:
    """Tasks of a job with ``spread`` are due within the window, evenly, each always at the same moment."""
    found = delays({"n": list(range(1000))}, spread="10m")
    assert found == delays({"n": list(range(1000))}, spread="10m")
    for minute in range(10):
        assert 60 < sum(minute * 60 <= (each or 0) < (minute + 1) * 60 for each in found) < 140


def test_a_spread_begins_when_a_task_would_be_due() -> None:
    """With a countdown or an eta, the window begins there."""
    found = delays({"countdown": [100.0, 0, None] * 50}, spread="10s")
    assert all(100 <= (each or 0) <= 110 for each in found[::3])
    assert all(0 <= (each or 0) <= 10 for each in found[1::3] + found[2::3])


def test_a_due_time_may_be_the_latest() -> None:
    """A delay of just max_delay is taken, a longer one is a fault."""
    assert delays({"countdown": [60]}, max_delay=60) == [60]
    assert (
        "later than the transport option max_delay allows" in errors_of(made({"countdown": [60.001]}, max_delay=60))[0]
    )
    last = pa.array([datetime.max.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))
    assert json.loads(offers({"eta": last})[0].body)["headers"]["eta"] == "9999-12-31T23:59:59.999999+00:00"
    assert "later than the year 9999" in errors_of(made({"eta": last}, spread="10s"))[0]
