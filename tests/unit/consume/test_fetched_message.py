"""A message that was fetched, beside the one that kombu makes of the same payload."""

from copy import deepcopy
from typing import Any

import pytest
from kombu import Connection, serialization
from kombu.transport import virtual

from kombu_delayq.consume.fetched import FetchedMessage, FetchedPayload
from kombu_delayq.message.fields import from_json
from tests.support.messages import task_message

ATTRIBUTES = (
    *("body", "headers", "properties", "delivery_info", "content_type", "content_encoding", "accept", "channel"),
    *("_raw", "_state", "acknowledged", "_decoded_cache"),
)


def payload(**changes: Any) -> dict[str, Any]:
    """Returns a message of a task as its queue has it, with other values for some of its fields."""
    message = deepcopy(task_message())
    message["properties"] |= {"delivery_tag": "t", "delivery_info": {"exchange": "", "routing_key": "q"}}
    return message | changes


@pytest.mark.parametrize(
    "found",
    [
        payload(),
        payload(body="caf\u00e9", properties={"delivery_tag": "t", "body_encoding": None}),
        payload(body="\ud800", properties={"delivery_tag": "t"}),
        payload(body=""),
        payload(headers=None),
        payload(headers={"compression": "application/x-gzip"}, body="H4sIAAAAAAAC"),
        {"properties": {"delivery_tag": "t"}},
    ],
)
def test_a_message_is_the_one_that_kombu_makes(found: dict[str, Any]) -> None:
    """Each attribute has kombu's value, also of bodies in other encodings and of damaged ones; but for the tag."""
    with Connection("memory://") as connection:
        channel = connection.default_channel
        theirs = virtual.Message(deepcopy(found), channel=channel)
        ours = FetchedMessage(FetchedPayload(deepcopy(found), "tag", "q"), channel=channel)
        assert [getattr(ours, name) for name in ATTRIBUTES] == [getattr(theirs, name) for name in ATTRIBUTES]
        assert [error[0] for error in ours.errors] == [error[0] for error in theirs.errors]
        assert (ours.delivery_tag, theirs.delivery_tag) == ("tag", "t")


@pytest.mark.parametrize(
    ("body", "encoding", "error"),
    [
        ("YQ", "base64", "Incorrect padding"),
        ("YQ==", "rot13", "'NoneType' object has no attribute 'decode'"),
        (5, "base64", "not 'int'"),
        *((body, None, "the body of a message is text") for body in (5, 0, {"a": "\ud800"}, [])),
    ],
)
def test_a_body_that_cannot_be_decoded_is_an_error_of_the_message(body: Any, encoding: Any, error: str) -> None:
    """A consumer of kombu hands the message to ``on_decode_error``, which may show the body and its length."""
    found = payload(body=body, properties={"delivery_tag": "t", "body_encoding": encoding})
    reported: list[tuple[Any, str]] = []
    with Connection("memory://") as connection:
        channel = connection.default_channel
        message = FetchedMessage(FetchedPayload(found, "tag", "q"), channel=channel)
        consumer = connection.Consumer(
            [], on_decode_error=lambda message, error: reported.append((message, str(error)))
        )
        consumer._receive_callback(message)
    assert [message for message, _ in reported] == [message]
    assert error in reported[0][1]
    assert (message.delivery_tag, message.headers) == ("tag", found["headers"])
    assert message.body == str(body).encode(errors="replace")


@pytest.mark.parametrize("accept", [None, set(), {"application/json"}])
@pytest.mark.parametrize("body", [b'[[{"__type__": "uuid"}, NaN], {}, {}]', b"[[1], {}, {}]", b"", b"{", b"\xff"])
def test_content_is_what_kombu_reads(body: bytes, accept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message in a worker has kombu's content or raises kombu's error, whether JSON is accepted or not."""
    monkeypatch.setitem(serialization.registry._decoders, "application/json", from_json)

    def read(made: type[virtual.Message]) -> str:
        message = made(deepcopy(payload()), channel=channel)
        message.body, message.accept = body, accept
        try:
            return repr(message.payload)
        except Exception as error:
            return repr(error)

    with Connection("memory://") as connection:
        channel = connection.default_channel
        assert read(FetchedMessage) == read(virtual.Message)
