"""``canonical``: what of a message is stored, and under which id."""

import copy
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads

from kombu_delayq.message.fields import Message
from kombu_delayq.message.outgoing import _NO_TAG, canonical
from tests.support.messages import ETA_AT, plain_message, task_message


def again(message: Message) -> Message:
    """The message as kombu builds it for another attempt: all the same but the delivery tag."""
    other = copy.deepcopy(message)
    other["properties"]["delivery_tag"] = str(uuid4())
    return other


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_repeated_publish_has_the_same_bytes(protocol: int) -> None:
    """The same task with another delivery tag is written as the same bytes, under its task id."""
    message = task_message(eta=ETA_AT, task_id="some id", conf={"task_protocol": protocol})
    identity, body = canonical(again(message), "some id")
    assert identity == "some id"
    assert canonical(again(message), "some id") == (identity, body)


def test_another_process_makes_the_same_tag() -> None:
    """``origin`` and ``reply_to``, which differ with process and thread, are kept and do not change the tag."""
    one = task_message(eta=ETA_AT, task_id="some id")
    other = again(one)
    other["headers"]["origin"], other["properties"]["reply_to"] = "gen2@elsewhere", str(uuid4())
    bodies = [loads(canonical(message, "some id")[1]) for message in (one, other)]
    assert len({body["properties"]["delivery_tag"] for body in bodies}) == 1
    assert [body["headers"]["origin"] for body in bodies] == [one["headers"]["origin"], "gen2@elsewhere"]
    assert [body["properties"]["reply_to"] for body in bodies] == [
        message["properties"]["reply_to"] for message in (one, other)
    ]


@pytest.mark.parametrize("where", ["headers", "properties"])
def test_names_of_senders_that_are_no_names_of_celery_count(where: str) -> None:
    """What an app itself calls ``origin`` or ``reply_to``, within a header or a property, tells two tasks apart."""
    tags = set()
    for name in ("a", "b"):
        message = task_message(eta=ETA_AT, task_id="some id")
        message[where]["own"] = {"origin": name, "ignore_result": 1, "reply_to": name}
        tags.add(loads(canonical(message, "some id")[1])["properties"]["delivery_tag"])
    assert len(tags) == 2


@pytest.mark.parametrize("changed", ["body", "headers", "priority"])
def test_other_content_has_another_delivery_tag(changed: str) -> None:
    """Two tasks of one custom id that differ in anything get delivery tags of their own."""
    one = task_message(eta=ETA_AT, task_id="some id")
    other = again(one)
    if changed == "priority":
        other["properties"]["priority"] = 5
    else:
        other[changed] = {**other["headers"], "x": 1} if changed == "headers" else other["body"][::-1]
    tags = {loads(canonical(message, "some id")[1])["properties"]["delivery_tag"] for message in (one, other)}
    assert len(tags) == 2


def test_the_delivery_tag_is_a_uuid() -> None:
    """The delivery tag of a canonical task looks like one of kombu's: a UUID."""
    tag = loads(canonical(task_message(eta=ETA_AT), "i")[1])["properties"]["delivery_tag"]
    assert str(UUID(tag)) == tag


def test_the_delivery_tag_is_the_only_change() -> None:
    """The canonical form keeps everything of a message but its delivery tag."""
    message = task_message(({"deep": [1, "ü", None]},), eta=ETA_AT, priority=3)
    before = copy.deepcopy(message)
    written = loads(canonical(message, "i")[1])
    del written["properties"]["delivery_tag"], before["properties"]["delivery_tag"]
    assert written == before


def test_a_message_without_a_task_id_keeps_its_delivery_tag() -> None:
    """A plain kombu message is kept under its delivery tag, as it is."""
    message = plain_message({"a": 1}, DelaySeconds=1)
    before = copy.deepcopy(message)
    identity, body = canonical(message, None)
    assert identity == before["properties"]["delivery_tag"]
    assert loads(body) == before


def test_a_message_is_written_as_kombu_writes_it() -> None:
    """Values that only kombu's JSON knows come out byte for byte as kombu's dumps writes them."""
    message = plain_message({"a": 1}, DelaySeconds=1)
    message["headers"] = {"when": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\xff", "of": uuid4(), "n": Decimal("1.5")}
    assert canonical(message, None)[1] == dumps(message)
    assert canonical(message, "i")[1] == dumps(message)


_NAMES = st.text(max_size=20)
_VALUES = st.recursive(
    st.none() | st.integers() | _NAMES, lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner)
)


_TEXTS = st.text(max_size=50) | st.builds("{}{}{}".format, st.text(max_size=3), st.just(_NO_TAG), st.text(max_size=3))


@given(st.dictionaries(_NAMES | _TEXTS, _VALUES | _TEXTS, max_size=4), _TEXTS, _TEXTS)
def test_any_message_is_sealed_to_equal_content(headers: dict[str, Any], body: str, task_id: str) -> None:
    """Whatever headers, body and id are, the canonical message reads back equal, and twice the same."""
    message = {
        "body": body,
        "headers": headers,
        "properties": {"delivery_tag": str(uuid4()), "correlation_id": task_id},
    }
    identity, text = canonical(copy.deepcopy(message), task_id)
    assert (identity, text) == canonical(again(message), task_id)
    written = loads(text)
    tag = written["properties"].pop("delivery_tag")
    assert (written["headers"], written["body"], written["properties"]) == (headers, body, {"correlation_id": task_id})
    assert str(UUID(tag)) == tag


@pytest.mark.parametrize("where", ["argument", "header", "name of a header", "id"])
def test_a_text_that_stands_for_the_tag_stays_where_it_is_a_users(where: str) -> None:
    """Only the delivery tag is filled in, also where a task has the text that stands for it while it is written."""
    text = f"so {_NO_TAG}{_NO_TAG} it is"
    message = task_message(eta=ETA_AT, task_id=text if where == "id" else "some id")
    if where == "argument":
        message["headers"]["argsrepr"] = f"('{text}',)"
        message["body"] = f'[["{text}"], {{}}, {{}}]'
        del message["properties"]["body_encoding"]
    elif where != "id":
        message["headers"][text] = text
    expected = copy.deepcopy(message)
    other = again(message)
    written = loads(canonical(message, "some id")[1])
    tag = written["properties"]["delivery_tag"]
    assert str(UUID(tag)) == tag == message["properties"]["delivery_tag"]
    assert written["properties"] == {**expected["properties"], "delivery_tag": tag}
    assert (written["headers"], written["body"]) == (expected["headers"], expected["body"])
    assert loads(canonical(other, "some id")[1]) == written, "the same when it is published again"
