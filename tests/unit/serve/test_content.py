"""What a consumer over HTTP gets of messages of all kinds."""

import base64
import json
import pickle
from typing import Any

import msgpack
import msgspec
import pytest
import yaml

from celery_ext.serve.api.content import content_of
from celery_ext.serve.api.deliveries import Delivery

JSON, YAML, MSGPACK = "application/json", "application/x-yaml", "application/x-msgpack"


def message(
    body: str | bytes, kind: str = JSON, headers: object = None, properties: object = None, **more: Any
) -> dict[str, Any]:
    """Makes a message; bytes are encoded as kombu does."""
    encoded = base64.b64encode(body).decode() if isinstance(body, bytes) else body
    known = {"body_encoding": "base64"} if isinstance(body, bytes) else {}
    properties = {**known, **properties} if isinstance(properties, dict) else properties or known
    return {
        "body": encoded,
        "content-type": kind,
        "content-encoding": "utf-8",
        "headers": {"task": "t", "id": "i"} if headers is None else headers,
        "properties": properties,
        **more,
    }


@pytest.mark.parametrize(
    ("kind", "dumps"),
    [(JSON, json.dumps), (JSON, lambda it: json.dumps(it).encode()), (YAML, yaml.safe_dump), (MSGPACK, msgpack.packb)],
)
def test_arguments_are_decoded(kind: str, dumps: Any) -> None:
    """In each format that runs no code a task has arguments, and of ``embed`` what is not empty."""
    found = content_of(message(dumps([[1], {"a": "ü"}, {"callbacks": None, "chord": {"x": 1}}]), kind), "3")
    assert (found["tag"], found["task"], found["id"]) == ("3", "t", "i")
    assert (found["args"], found["kwargs"], found["embed"]) == ([1], {"a": "ü"}, {"chord": {"x": 1}})
    assert not {"body", "content"} & found.keys()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (pickle.dumps([[1], {}, {}]), "application/x-python-serialize"),
        (b"x", "application/data"),
        (b"[[NaN], {}, {}]", JSON),
        (b"{", JSON),
        (b"[1, 2]", JSON),
        (b"[[1], {}, {}, {}]", JSON),
        (yaml.safe_dump([[{"a": b"\xff"}], {}, {}]).encode(), YAML),
        (msgpack.packb([[b"\xff"], {}, {}]), MSGPACK),
        (b"[" * 100_000, JSON),
    ],
)
def test_what_is_no_json_comes_as_it_is(body: bytes, kind: str) -> None:
    """A body that cannot be decoded, or whose values JSON does not have, comes in base64."""
    found = content_of(message(body, kind), "1")
    assert base64.b64decode(found["body"]) == body
    assert (found["content_type"], found["content_encoding"]) == (kind, "utf-8")
    assert "args" not in found
    json.dumps(found, allow_nan=False)


def test_a_task_of_protocol_1_is_decoded() -> None:
    """Its name and arguments are in its body."""
    body = json.dumps({"task": "t", "id": "i", "args": [1], "kwargs": None, "retries": 2, "expires": "2001-01-01"})
    found = content_of(message(body, headers={}), "1")
    assert (found["task"], found["id"], found["args"], found["kwargs"]) == ("t", "i", [1], {})
    assert (found["retries"], found["expired"]) == (2, True)


@pytest.mark.parametrize(("body", "content"), [(b"{}", {}), (b"null", None), (b"0", 0), (b'""', "")])
def test_a_plain_message_has_its_content(body: bytes, content: object) -> None:
    """Also where it is empty."""
    found = content_of(message(body, headers={}), "1")
    assert found["content"] == content
    assert found["task"] is found["id"] is None


@pytest.mark.parametrize(
    "odd",
    [
        {"headers": []},
        {"headers": {"task": 1, "id": 2, "retries": "x", "expires": 5}},
        {"headers": {"task": "t", "id": "i", "expires": "never", "x": float("nan")}},
        {"properties": {"delivery_info": 1, "priority": "x", "x-delivery-count": "x"}},
        {"body": None},
        {"properties": {"reply_to": float("nan"), "delivery_info": {}}},
        {"headers": {}, "body": '{"task": "t", "args": 5}'},
        {"body": 5, "content-type": 5, "content-encoding": 5},
    ],
)
def test_odd_fields_make_no_error(odd: dict[str, Any]) -> None:
    """Any program may have written a message; what comes is JSON, and says nothing that is not there."""
    found = content_of({**message(b"[[], {}, {}]"), **odd}, "1")
    json.dumps(found, allow_nan=False)
    msgspec.convert(found, Delivery)
    assert (found["expired"], found["delivery_count"], found["retries"], found["priority"]) == (False, 0, 0, 0)


def test_marks_of_former_deliveries_are_there() -> None:
    """Redelivered as kombu marks it, in either place, and how often a consumer died with the message."""
    marked = message(b"[[], {}, {}]", properties={"delivery_info": {"redelivered": True}, "x-delivery-count": 3})
    found = content_of(marked, "1")
    assert (found["redelivered"], found["delivery_count"]) == (True, 3)
    assert content_of(message(b"[[], {}, {}]", headers={"redelivered": True}), "1")["redelivered"]
