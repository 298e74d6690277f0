"""What kombu notes of a message in hand is read as kombu reads it."""

import json

import pytest
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from kombu_delayq.message.unacked import Note, read_note
from tests.support.messages import plain_message, task_message


@pytest.mark.parametrize("message", [task_message(), plain_message("ünï"), {}], ids=["task", "plain", "empty"])
def test_a_note_of_kombu_is_read(message: dict[str, object]) -> None:
    """Message, exchange and routing key are those that were noted, by kombu or by our consumers."""
    assert read_note(dumps([message, "orders", "orders.eu"]).encode()) == (message, "orders", "orders.eu")
    assert read_note(b"[" + dumps(message).encode() + b',"","\\u00fc"]') == (message, "", "ü")
    assert read_note(dumps([message, None, "q"]).encode()) == (message, "", "q")


def test_bytes_that_are_no_utf_8_are_read_as_kombu_does() -> None:
    """Such a message goes back with the same text that stock kombu would give it."""
    raw = b'[{"body": "\xff\xfe"},"","q"]'
    assert read_note(raw) == tuple(loads(bytes_to_str(raw)))


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{}", b"[]", b"\xff", b'[1,"","q"]', b'[{},"","q",1]', b'[{},"",null]', b'[{},1,"q"]'),
        *(b'[no JSON,"","q"]', b"[" * 100_000),
    ],
)
def test_anything_else_is_no_note(raw: bytes) -> None:
    """What is no note of a message is no error either."""
    assert read_note(raw) is None


def test_what_a_message_says_stays_out_of_reprs() -> None:
    """The repr of a note shows nothing of a task's arguments."""
    assert "secret" not in repr(Note(json.loads('{"body": "secret"}'), "", "q"))
