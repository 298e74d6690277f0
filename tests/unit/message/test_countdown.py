"""Countdowns that the broker counts: what of a message is stored, and which messages stay as they are."""

import json
import math
from typing import Any

import pytest

from kombu_delayq.message.countdown import COUNTDOWN, is_countable, is_delay, seal_settled, settle, without_countdown
from kombu_delayq.message.due import Due, due_of
from kombu_delayq.message.fields import Message
from kombu_delayq.message.seal import seal
from tests.support.messages import ETA_AT, plain_message, task_message
from tests.unit.message.test_seal import again


def counted(seconds: float = 90.5, **options: Any) -> Message:
    """A task that Celery has given an eta, with its countdown beside it."""
    return task_message(task_id="some id", **{"eta": ETA_AT, COUNTDOWN: seconds, **options})


@pytest.mark.parametrize(
    ("countdown", "expected"),
    [
        (1, True),
        (0.001, True),
        (True, True),
        (10**9, True),
        (-5, True),
        (-0.001, True),
        (0, False),
        (None, False),
        ("5", False),
        (math.nan, False),
        (math.inf, False),
        (-math.inf, False),
        (10**400, False),
        (-(10**400), False),
    ],
)
def test_what_is_a_countdown(countdown: Any, expected: bool) -> None:
    """A number of seconds but zero that a datetime can take; all others are Celery's matter."""
    assert is_countable(countdown) is expected
    assert is_delay(countdown) is (expected and countdown > 0)


def test_the_broker_counts_a_countdown() -> None:
    """The due time counts from the arrival, and the message itself stays: kombu may send it again."""
    message = counted()
    before = json.dumps(message)
    assert settle(message, by_broker=True) == (message, Due(90_500.0, True, "some id"))
    assert json.dumps(message) == before


def test_a_countdown_that_is_past_leaves_no_eta() -> None:
    """A task that is due at once is so by each clock: its eta may be to come for who made it, or for its worker."""
    message = counted(-5.0)
    before = json.dumps(message)
    settled, due = settle(message, by_broker=True)
    assert due is None
    assert settled["headers"] == {**message["headers"], "eta": None}
    assert COUNTDOWN not in settled["properties"]
    assert json.dumps(message) == before


def test_the_publisher_counts_a_countdown() -> None:
    """Without the option the task is due at its eta, and nothing of the countdown is left in its message."""
    message = counted()
    settled, due = settle(message, by_broker=False)
    assert due == due_of(message)
    assert settled == without_countdown(message)
    assert COUNTDOWN not in settled["properties"]
    assert COUNTDOWN in message["properties"]


@pytest.mark.parametrize("by_broker", [True, False])
def test_messages_without_a_countdown_stay(by_broker: bool) -> None:
    """An eta, no delay, and ``DelaySeconds`` mean the same with either clock, and the message is the same object."""
    for message in (task_message(eta=ETA_AT), task_message(), plain_message(DelaySeconds=3)):
        settled, due = settle(message, by_broker=by_broker)
        assert settled is message
        assert due == due_of(message)
        identity = due.task_id if due else None
        assert seal_settled(again(message), identity)[1:] == seal(again(message), identity)[1:] or identity is None


def test_protocol_1_goes_by_its_eta() -> None:
    """A task of protocol 1 has its eta in its body, and waits for that."""
    message = counted(conf={"task_protocol": 1})
    settled, due = settle(message, by_broker=True)
    assert due is not None
    assert not due.relative
    assert due == due_of(message)
    assert COUNTDOWN not in settled["properties"]


def test_a_stored_message_has_no_eta() -> None:
    """Neither the eta nor the property is stored; everything else is, and the caller's message keeps both."""
    message = counted(priority=3)
    identity, body = seal_settled(message, "some id")
    stored = json.loads(body)
    assert identity == "some id"
    assert stored["headers"]["eta"] is None
    assert COUNTDOWN not in stored["properties"]
    assert message["headers"]["eta"] == ETA_AT.isoformat()
    expected = without_countdown(message)
    expected["headers"] = {**expected["headers"], "eta": None}
    assert stored == json.loads(json.dumps(expected))


def test_a_repeated_publish_has_the_same_bytes() -> None:
    """The same task with another delivery tag of kombu is sealed to the same bytes, so it is stored once."""
    message = counted()
    assert seal_settled(again(message), "some id") == seal_settled(again(message), "some id")


def test_a_later_call_with_the_same_id_has_other_bytes() -> None:
    """Two calls of one custom id, arguments and countdown stay two tasks: their etas made their delivery tags."""
    later = ETA_AT.replace(microsecond=0)
    one, other = (seal_settled(counted(eta=eta), "some id")[1] for eta in (ETA_AT, later))
    assert one != other
    assert [json.loads(each)["headers"]["eta"] for each in (one, other)] == [None, None]
