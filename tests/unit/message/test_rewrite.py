"""A message with another eta, in whatever form it has one, or with other properties."""

import base64
import json
import zlib
from datetime import UTC, datetime
from time import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.serialization import dumps, loads

from kombu_delayq.errors import UnreadableMessage
from kombu_delayq.message.due import due_of, eta_of, moment_of
from kombu_delayq.message.fields import CHAIN_ID, Message, to_json
from kombu_delayq.message.rewrite import with_eta, with_properties
from tests.support.messages import ETA, ETA_AT, plain_message, task_message

SERIALIZERS = ["json", "pickle", "yaml", "msgpack"]
COMPRESSIONS = [None, "zlib", "bzip2", "lzma"]
NEW_ETA = "2101-02-03T04:05:06.789012+00:00"
NEW_MS = datetime.fromisoformat(NEW_ETA).timestamp() * 1000
ARGS = (1, "ü", None, [2.5, {"k": "é"}])


def stored(message: Message) -> bytes:
    return json.dumps(message).encode()


def changed(message: Message, due_ms: float = NEW_MS) -> Message:
    other: Message = json.loads(with_eta(stored(message), due_ms))
    return other


def task_of(message: Message) -> Any:
    """Decodes the body of a task of protocol 1 as a consumer does."""
    raw = base64.b64decode(message["body"])
    if "compression" in message["headers"]:
        raw = {"application/x-gzip": zlib.decompress}[message["headers"]["compression"]](raw)
    kind = message["content-type"]
    return loads(raw, kind, message["content-encoding"], accept={kind})


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_the_eta_of_protocol_2_is_replaced_and_nothing_else(serializer: str, compression: str | None) -> None:
    """A task of protocol 2 keeps each byte but those of its eta, whatever its arguments are written in."""
    message = task_message(ARGS, eta=ETA_AT, expires=ETA_AT, serializer=serializer, compression=compression)
    assert with_eta(stored(message), NEW_MS) == stored(message).replace(
        b'"eta": "%s"' % ETA.encode(), b'"eta": "%s"' % NEW_ETA.encode()
    )
    assert changed(message)["headers"]["eta"] == NEW_ETA
    assert changed(message)["headers"]["expires"] == ETA
    without = json.loads(with_eta(stored(message), None))
    assert without["properties"].pop("timestamp") == pytest.approx(time(), abs=10)  # it is ready now
    assert to_json(without).encode() == stored(message).replace(b'"eta": "%s"' % ETA.encode(), b'"eta": null')


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("serializer", ["json", "yaml", "msgpack"])
def test_the_eta_of_protocol_1_is_replaced_in_its_body(serializer: str, compression: str | None) -> None:
    """A task of protocol 1 is due at the new time, and says the same of all else, in its form."""
    conf = {"task_protocol": 1, "task_serializer": serializer}
    message = task_message(ARGS, conf=conf, eta=ETA_AT, task_id="i", compression=compression)
    other = changed(message)
    due = due_of(other)
    assert due is not None
    assert (moment_of(due.ms).isoformat(), due.task_id) == (NEW_ETA, "i")
    assert {**other, "body": ""} == {**message, "body": ""}
    if compression in (None, "zlib"):
        assert task_of(other) == {**task_of(message), "eta": NEW_ETA}
        assert list(task_of(other)["args"]) == list(ARGS)


def test_types_that_only_the_app_knows_stay_in_a_task_of_protocol_1() -> None:
    """JSON of protocol 1 with objects of registered types is changed where nobody has registered them."""
    message = task_message(conf={"task_protocol": 1}, eta=ETA_AT)
    task = task_of(message)
    task["args"] = [{"__type__": "money", "__value__": "1 EUR"}]
    message["body"] = base64.b64encode(json.dumps(task).encode()).decode()
    assert json.loads(base64.b64decode(changed(message)["body"])) == {**task, "eta": NEW_ETA}


def test_a_body_of_protocol_1_that_is_not_encoded_stays_so() -> None:
    """A protocol 1 task of a producer that does not use base64 is changed too."""
    message = task_message(conf={"task_protocol": 1}, eta=ETA_AT)
    message["body"] = base64.b64decode(message["body"]).decode()
    del message["properties"]["body_encoding"]
    assert json.loads(changed(message)["body"]) == {**json.loads(message["body"]), "eta": NEW_ETA}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_pickled_task_of_protocol_1_is_unreadable(compression: str | None) -> None:
    """An eta inside a pickle cannot be replaced, as that would run what is in it."""
    conf = {"task_protocol": 1, "task_serializer": "pickle"}
    message = task_message(conf=conf, eta=ETA_AT, compression=compression)
    with pytest.raises(UnreadableMessage, match="pickle"):
        with_eta(stored(message), NEW_MS)


@pytest.mark.parametrize("eta", ["2100-01-01T10:00:00", "2100-01-01", "2100-01-01T10:00:00Z", "2100-W01-1"])
def test_an_eta_of_any_form_is_replaced(eta: str) -> None:
    """An eta without a zone, or written in another way that workers read, becomes one in UTC."""
    message = task_message(eta=ETA_AT)
    message["headers"]["eta"] = eta
    assert changed(message)["headers"]["eta"] == NEW_ETA


@pytest.mark.parametrize(
    "message",
    [
        task_message(),
        plain_message(DelaySeconds=5),
        plain_message({"a": 1}, DelaySeconds=5, correlation_id="i"),
        plain_message(b"\xff\x00", DelaySeconds=5, correlation_id="i", headers={"id": "7"}),
        plain_message(**{CHAIN_ID: "c", "correlation_id": "i"}),
        {"headers": {"task": "t", "eta": ""}, "properties": {}},
        {"headers": None, "properties": None},
        {"headers": [], "properties": []},
        {},
    ],
    ids=lambda message: str(sorted(message.get("properties") or ()))[:60],
)
def test_a_message_without_an_eta_stays_as_it_is(message: Message) -> None:
    """What has no eta, such as a plain message with ``DelaySeconds``, is not touched."""
    assert with_eta(stored(message), NEW_MS) == stored(message)


def broken(**parts: Any) -> bytes:
    """Makes a task of protocol 1 with parts that are damaged."""
    return stored({**task_message(conf={"task_protocol": 1}, eta=ETA_AT), **parts})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"5",
        b"null",
        b'"text"',
        b'{"headers": ["eta"]}',
        b'{"headers": "eta"}',
        b'{"headers": 7}',
        b'{"properties": [1]}',
        b'{"properties": "correlation_id"}',
        b"[" * 100_000,
        b'{"headers": ' + b'{"a":' * 100_000,
        broken(body="!"),
        broken(body=7),
        broken(body=base64.b64encode(b"eta task \xff").decode()),
        broken(headers={"compression": "application/x-gzip"}),
        broken(headers={"compression": "no/such"}),
        broken(headers={"compression": ["gzip"]}),
        broken(**{"content-type": "application/no-such"}),
        broken(**{"content-type": None}),
        broken(**{"content-type": ["application/json"]}),
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_a_message_of_which_nobody_knows_the_eta_is_unreadable(body: bytes) -> None:
    """What is damaged, or foreign, is refused with one error, as a message that looks unchanged would be adopted."""
    with pytest.raises(UnreadableMessage, match="cannot be replaced"):
        with_eta(body, NEW_MS)


@pytest.mark.parametrize("kind", ["application/json", "application/x-python-serialize", None])
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("!", {}),
        (7, {}),
        (base64.b64encode(b"eta task").decode(), {"compression": "application/x-gzip"}),
        (base64.b64encode(b"eta task").decode(), {"compression": "no/such"}),
    ],
)
def test_a_damaged_body_does_not_end_its_consumer(kind: str | None, body: Any, headers: dict[str, Any]) -> None:
    """A body that cannot be unpacked has no eta to be read, and its consumer reports it."""
    properties = {"correlation_id": "i", "body_encoding": "base64"}
    assert eta_of({"body": body, "content-type": kind, "headers": headers, "properties": properties}) is None


@pytest.mark.parametrize(
    ("due_ms", "eta"),
    [
        (0, "1970-01-01T00:00:00+00:00"),
        (1.5, "1970-01-01T00:00:00.001500+00:00"),
        (-1e300, "0001-01-01T00:00:00+00:00"),
        (1e300, "9999-12-31T23:59:59.999999+00:00"),
        (253402300800000 + 43200000, "9999-12-31T23:59:59.999999+00:00"),
    ],
)
def test_times_that_no_datetime_names_become_the_nearest(due_ms: float, eta: str) -> None:
    """A due time of the year 10000, which an eta west of Greenwich can have, is written as the last moment of 9999."""
    assert changed(task_message(eta=ETA_AT), due_ms)["headers"]["eta"] == eta


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
extras = st.dictionaries(st.text().filter(lambda key: key not in ("eta", "task", "compression")), json_values)


@given(extras, extras, json_values, st.datetimes(timezones=st.just(UTC)), st.booleans())
def test_all_but_the_eta_stays(
    headers: dict[str, Any], properties: dict[str, Any], body: Any, eta: datetime, ascii_only: bool
) -> None:
    """Whatever else a task of protocol 2 has, also of a producer that writes UTF-8, it keeps."""
    message = {"headers": {**headers, "task": "t", "eta": ETA}, "properties": properties, "body": body}
    given_bytes = json.dumps(message, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    due_ms = (eta - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000
    other = json.loads(with_eta(given_bytes, due_ms))
    assert abs((datetime.fromisoformat(other["headers"]["eta"]) - eta).total_seconds()) < 0.001
    other["headers"]["eta"] = ETA
    assert other == message


@given(st.dictionaries(st.text().filter(lambda key: key != "eta"), json_values), st.sampled_from(["json", "yaml"]))
def test_all_but_the_eta_stays_in_protocol_1(fields: dict[str, Any], serializer: str) -> None:
    """Whatever else the body of a task of protocol 1 has, it keeps."""
    task = {**fields, "task": "t", "id": "i", "args": [1], "eta": ETA}
    kind, encoding, raw = dumps(task, serializer)
    raw = raw.encode() if isinstance(raw, str) else raw
    message = {
        "body": base64.b64encode(raw).decode(),
        "content-type": kind,
        "content-encoding": encoding,
        "headers": {},
        "properties": {"correlation_id": "i", "body_encoding": "base64"},
    }
    if eta_of(message) is not None:  # kombu's YAML writes some texts that it does not read
        assert task_of(changed(message)) == {**task_of(message), "eta": NEW_ETA}


def test_properties_are_set_and_removed() -> None:
    """A property with a value is set, one with None is removed, and the order and all else stay."""
    message = plain_message({"a": 1}, priority=3, reason="x")
    changed = {**message["properties"], "priority": 4}
    del changed["reason"]
    info = {**message["properties"]["delivery_info"], "routing_key": "other"}
    rewritten = with_properties(
        stored(message), {"priority": 4, "reason": None, "missing": None}, delivery_info={"routing_key": "other"}
    )
    assert rewritten == stored({**message, "properties": {**changed, "delivery_info": info}})


@pytest.mark.parametrize("info", [None, 7, [1]])
def test_a_delivery_info_of_another_type_is_replaced(info: Any) -> None:
    """Where ``delivery_info`` is no mapping, it becomes one of the new fields."""
    message = {"properties": {"delivery_info": info, "delivery_tag": "t"}}
    changed = json.loads(with_properties(stored(message), {}, delivery_info={"exchange": ""}))
    assert changed == {"properties": {"delivery_info": {"exchange": ""}, "delivery_tag": "t"}}


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"properties": {}}',
        b'{"properties": [1]}',
        b'{"properties": {"a": "\xff"}}',
        b"[" * 10**5,
    ],
)
def test_what_has_no_readable_properties_stays_as_it_is(raw: bytes) -> None:
    """A message that is damaged keeps every byte."""
    assert with_properties(raw, {"reason": None, "priority": 1}, delivery_info={"exchange": ""}) == raw
