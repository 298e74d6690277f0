"""What kombu notes of a message in hand is read as kombu reads it."""

import json
from typing import Any
from unittest.mock import ANY

import pytest
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from kombu_delayq.message.unacked import read_note
from tests.support.messages import plain_message, task_message


@pytest.mark.parametrize("message", [task_message(), plain_message("ünï"), {"a": ',"",'}], ids=["task", "plain", "odd"])
def test_a_note_of_kombu_is_read(message: dict[str, Any]) -> None:
    """Message, exchange and routing key are those that were noted, by kombu or by our consumers."""
    noted = dumps([message, "orders", "orders.eu"]).encode()
    assert read_note(noted) == (message, ANY, "orders", "orders.eu")
    raw = dumps(message).encode()
    assert read_note(b"[" + raw + b',"","\\u00fc"]') == (message, raw, "", "ü")
    assert read_note(dumps([message, None, "q"]).encode()) == (message, b"", "", "q")


def test_bytes_that_are_no_utf_8_are_read_as_kombu_does() -> None:
    """Such a message goes back with the same text that stock kombu would give it."""
    noted = b'[{"body": "\xff\xfe"},"","q"]'
    found = read_note(noted)
    assert found is not None
    assert [found.message, found.exchange, found.routing_key] == loads(bytes_to_str(noted))
    assert json.loads(found.given_back())["body"] == "\ufffd\ufffd"


@pytest.mark.parametrize("raw", [b"no JSON", b"", b"1", b"[]", b"\x00\xff", b'"', b'a,"",b', b"{}", b"[" * 100_000])
def test_whatever_a_queue_had_goes_back_as_it_was(raw: bytes) -> None:
    """In a note of ours anything may stand in the place of the message, and the queue is known all the same."""
    found = read_note(b"[" + raw + b',"","q,\\"\\",x"]')
    assert found is not None
    assert (found.message, found.routing_key, found.priority) == ({}, 'q,"",x', 0)
    assert found.given_back() == raw


def test_a_message_goes_back_marked_and_counted() -> None:
    """A message that comes back is marked as kombu marks it, and its deaths are counted."""
    sent = task_message(priority=3)
    found = read_note(dumps([{**sent, "properties": {**sent["properties"], "x-delivery-count": 2}}, "", "q"]).encode())
    assert found is not None
    assert (found.deaths, found.priority) == (3, 3)
    back = json.loads(found.given_back())
    assert back["headers"] == {**sent["headers"], "redelivered": True}
    assert back["properties"].pop("x-delivery-count") == 3
    assert back["properties"].pop("delivery_info").pop("redelivered")
    assert back["body"] == sent["body"]


@pytest.mark.parametrize(
    "noted", [b"", b"{}", b"[]", b"\xff", b'[{},"","q",1]', b'[{},"",null]', b'[{},1,"q"]', b'x,"","q"]']
)
def test_anything_else_is_no_note(noted: bytes) -> None:
    """What is no note of a message is no error either."""
    assert read_note(noted) is None
