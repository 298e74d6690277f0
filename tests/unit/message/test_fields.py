"""The fields of a message, whatever somebody wrote in their place."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from kombu.utils.json import dumps, loads

from kombu_delayq.message.fields import (
    fault_of,
    from_json,
    headers_of,
    properties_of,
    read,
    task_id_of,
    text_to_json,
    to_json,
)
from tests.support.messages import plain_message, task_message

#: A list that contains itself.
_WITHIN_ITSELF: list[Any] = [1]
_WITHIN_ITSELF.append({"list": _WITHIN_ITSELF})


@pytest.mark.parametrize("raw", [None, b"", b"no json", b"[]", b"7", b"null", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_message_reads_as_an_empty_one(raw: bytes | None) -> None:
    """A message that is lost, or no JSON object, has no fields."""
    message = read(raw)
    assert message == {}
    assert (headers_of(message), properties_of(message)) == ({}, {})


def test_bytes_that_are_no_utf8_do_not_hide_a_task() -> None:
    """Kombu's consumers take a message with such bytes, so it is read, with surrogates in their place."""
    headers = headers_of(read(b'{"headers": {"task": "caf\xe9", "id": "i"}}'))
    assert headers == {"task": "caf\udce9", "id": "i"}


@pytest.mark.parametrize("other", [None, 7, "text", [1], True])
def test_headers_and_properties_of_another_type_are_none(other: Any) -> None:
    """Where a field has another type, it is as if it were not there."""
    assert headers_of({"headers": other}) == {}
    assert properties_of({"properties": other}) == {}


@pytest.mark.parametrize(
    ("head", "task_id"),
    [
        ({"task": "t", "id": "i"}, "i"),
        ({"task": None, "id": "i"}, "i"),
        ({"id": "i"}, None),
        ({"task": "t"}, None),
        ({"task": "t", "id": 7}, None),
        ({"task": "t", "id": UUID(int=7)}, "00000000-0000-0000-0000-000000000007"),
    ],
)
def test_only_a_task_has_a_task_id(head: dict[str, Any], task_id: str | None) -> None:
    """The header ``id`` of what is no task is any text, and an id that is neither a text nor a UUID is none."""
    assert task_id_of(head) == task_id


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"{", "it is no JSON:"),
        (b"[" * 100_000, "it is no JSON:"),
        (b"[]", "it is no JSON object"),
        (b"{}", "which has a body, headers and properties"),
        (b'{"body": "", "headers": [], "properties": {}}', "which has a body, headers and properties"),
        (b'{"body": "", "headers": {}, "properties": {"delivery_tag": 1, "delivery_info": {}}}', "have a delivery_tag"),
        (b'{"body": "", "headers": {}, "properties": {"delivery_tag": "t"}}', "have a delivery_tag and delivery_info"),
    ],
)
def test_a_fault_is_what_kombu_could_not_take(raw: bytes, fault: str) -> None:
    """The reason names what is missing."""
    assert fault in str(fault_of(raw))


@pytest.mark.parametrize("message", [task_message(), plain_message({"a": 1})])
def test_messages_of_kombu_have_no_fault(message: dict[str, Any]) -> None:
    """What kombu has made can be taken, also with bytes that are no UTF-8."""
    raw = json.dumps(message).encode()
    assert fault_of(raw) is None
    assert fault_of(raw.replace(b"{", b'{"x": "\xff", ', 1)) is None


@pytest.mark.parametrize("text", ["", "plain", 'a "quoted" \\ one', "ü\U0001f600", "\0\n\x7f", "\ud800"])
def test_a_text_is_written_as_any_value(text: str) -> None:
    """The faster way for texts gives the same JSON."""
    assert text_to_json(text) == to_json(text) == json.dumps(text)


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, -2.5, 1e300, float("nan"), None, True], 1: ("x", "\xfc"), None: {}},
        {"when": [datetime(2044, 1, 2, tzinfo=UTC), UUID(int=1), Decimal("1.50"), b"\xff"]},
        {("a",): 1},
        [object()],
        _WITHIN_ITSELF,
    ],
)
def test_json_is_written_as_kombu_writes_it(value: Any) -> None:
    """The encoder that is made once writes the same bytes, and raises the same errors."""
    found = []
    for write in (dumps, to_json, to_json):  # twice: an error leaves nothing behind
        try:
            found.append(write(value))
        except Exception as error:
            found.append(repr(error))
    assert found == found[:1] * 3


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2.5, -1e400, NaN, "caf\\u00e9", "\\ud800", null, true], "n": 123456789012345678901234567890}',
        ' {"a": 1} ',
        '"text"',
        '{"a": 1, "a": 2, "numbers": [-0, -0.0, 5e-324, 18446744073709551616, 0.30000000000000004, 9007199254740993]}',
        '{"__type__": "uuid", "__value__": {"hex": "00000000000040008000000000000000"}}',
        '{"\\u005f_type__": "decimal", "__value__": "1.50"}',
        '[{"__type__": "bytes", "__value__": "raw"}, {"a": "__type__"}]',
    ],
)
@pytest.mark.parametrize("as_data", [str, str.encode])
def test_json_is_read_as_kombu_reads_it(text: str, as_data: Any) -> None:
    """The faster reader finds the same values, also dates, UUIDs and the like, however their marks are written."""
    assert repr(from_json(as_data(text))) == repr(loads(as_data(text)))


@pytest.mark.parametrize(
    "data", ["", "{", "{} x", "\ufeff{}", b"\xff", '{"__type__": "no such", "__value__": 1}', None]
)
def test_what_is_no_json_is_the_same_error_as_of_kombu(data: Any) -> None:
    """The faster reader raises what kombu raises."""
    with pytest.raises((ValueError, TypeError)) as theirs:
        loads(data)
    with pytest.raises(type(theirs.value), match=re.escape(str(theirs.value))):
        from_json(data)
