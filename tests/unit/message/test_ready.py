"""Since when a message could have been consumed."""

from time import time
from typing import Any

import pytest

from kombu_delayq.message.due import Due, ready_since_s
from kombu_delayq.message.outgoing import stamp_published
from tests.support.messages import changed_message

ETA, ETA_S = "1970-01-01T00:01:40+00:00", 100


@pytest.mark.parametrize(
    ("timestamp", "eta", "since_s"),
    [
        (7, None, 7),
        (7.5, None, 7.5),
        (None, ETA, ETA_S),
        (7, ETA, ETA_S),
        (200, ETA, 200),
        (None, None, None),
        ("7", None, None),
        (True, None, None),
        ([7], "soon", None),
    ],
)
def test_the_later_one_of_timestamp_and_eta_counts(timestamp: Any, eta: str | None, since_s: float | None) -> None:
    """A message waits since its timestamp, or since its eta where that is later; others do not say it."""
    assert ready_since_s(changed_message(headers={"eta": eta}, properties={"timestamp": timestamp})) == since_s


@pytest.mark.parametrize(
    ("due", "in_s"),
    [(None, 0), (Due(60_000.0, True, None), 60), (Due(60_000.0, True, "t"), None), (Due(9e15, False, "t"), None)],
)
def test_a_message_that_its_eta_tells_nothing_about_gets_a_timestamp(due: Due | None, in_s: float | None) -> None:
    """What goes to its queue now has this time, what is delayed without an eta that of its delay, a task none."""
    message = changed_message()
    stamp_published(message, due)
    wanted = None if in_s is None else pytest.approx(time() + in_s, abs=10)
    assert message["properties"].get("timestamp") == wanted


def test_a_timestamp_of_the_caller_stays() -> None:
    """A caller may know better since when."""
    message = changed_message(properties={"timestamp": 5})
    stamp_published(message, None)
    assert message["properties"]["timestamp"] == 5
