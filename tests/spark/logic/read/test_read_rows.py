"""Waiting messages become rows: what each column has, whatever the messages are."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from celery_ext.spark.options import ReadOptions
from celery_ext.spark.read.batch import ReadRows
from celery_ext.spark.read.schema import COLUMNS, arrow_schema, schema_of
from celery_ext.waiting import DelayedTask
from kombu_delayq.store.hash_layout import id_of
from kombu_delayq.store.types import Part, Scanned, Waiting
from tests.support.messages import ETA, ETA_AT, task_message
from tests.support.messages import changed_message as task
from tests.support.spark.odd_messages import MESSAGES

DUE = b"4102444800123.456"
DUE_AT = datetime(2100, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
SCHEMA = arrow_schema(schema_of(ReadOptions()))


def row_of(message: Any, **stored: Any) -> dict[str, Any]:
    """Returns the row of one message."""
    [row] = rows_of([message], **stored)
    return row


def rows_of(messages: list[Any], schema: pa.Schema = SCHEMA, ids: list[bytes] | None = None) -> list[dict[str, Any]]:
    """Returns the rows of messages: bytes, or what becomes JSON."""
    stored = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
    members = ids or [f"id-{at}".encode() for at in range(len(stored))]
    rows = ReadRows(Part("orders"))
    rows.add(Scanned(members, [DUE] * len(stored), list(map(len, stored)), False), list(map(id_of, members)), stored)
    found: list[dict[str, Any]] = rows.batch(schema).to_pylist()
    return found


def test_a_task_has_a_value_in_every_column() -> None:
    """A row of an ordinary task has what ``apply_async`` put into the message, and the message itself."""
    message = task_message((1, "ü"), kwargs={"k": [None, 0.5]}, task_id="t", eta=ETA_AT, retries=3)
    raw = json.dumps(message).encode()
    assert row_of(raw, ids=[b"t"]) == {
        "queue": "orders",
        "task": "proj.task",
        "task_id": "t",
        "due": DUE_AT,
        "eta": ETA,
        "priority": 0,
        "retries": 3,
        "args": '[1, "\\u00fc"]',
        "kwargs": '{"k": [null, 0.5]}',
        "size": len(raw),
        "raw": raw,
        "layout": "hash",
    }
    assert list(row_of(raw)) == list(COLUMNS)


def told(message: bytes) -> dict[str, Any]:
    """Returns what the columns that come from the body are to have, by the listing that looks at one at a time."""
    found = DelayedTask(Waiting("orders", "id", 0.0, 0, message))
    name = found.name and found.name.encode(errors="replace").decode()  # no column can have a lone surrogate
    return {
        "task": name,
        "eta": found.eta,
        "retries": None if name is None else found.retries,
        "args": found.args,
        "kwargs": found.kwargs,
    }


def read(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the same of a row."""
    parsed = {name: row[name] and json.loads(row[name]) for name in ("args", "kwargs")}
    return {**{name: row[name] for name in ("task", "eta", "retries")}, **parsed}


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_a_message_of_any_form_is_a_row(message: bytes) -> None:
    """A row says of a message what ``delayq show`` says, with NULL for what cannot be read, and fails for none."""
    assert read(row_of(message)) == told(message)


@pytest.mark.parametrize("seed", range(5))
def test_one_message_says_nothing_of_those_beside_it(seed: int) -> None:
    """In a batch of messages of all forms, each row is what it is for the message alone."""
    messages = [*MESSAGES, *[json.dumps(task(headers={"retries": at})).encode() for at in range(200)]]
    random.Random(seed).shuffle(messages)
    for row, message in zip(rows_of(messages), messages, strict=True):
        assert read(row) == told(message)
        assert row["raw"] == (message or None)


def test_ordinary_messages_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tasks in JSON none is looked at one by one, which the speed of reading depends on."""
    monkeypatch.setattr("celery_ext.spark.read.batch.DelayedTask", None)
    messages = [task_message((), kwargs={"n": at}, task_id=f"t{at}", eta=ETA_AT) for at in range(20)]
    assert [row["kwargs"] for row in rows_of(messages)] == [f'{{"n": {at}}}' for at in range(20)]


def test_a_column_is_the_same_beside_any_others() -> None:
    """Each column alone has the values that it has beside all others."""
    everything = rows_of(MESSAGES)
    for name in COLUMNS:
        alone = rows_of(MESSAGES, arrow_schema(schema_of(ReadOptions(columns=(name,)))))
        assert alone == [{name: row[name]} for row in everything]


def test_marks_are_no_part_of_a_message() -> None:
    """A marked message has its id, its priority and its body without the mark, and a damaged mark does no harm."""
    body = json.dumps(task()).encode()
    members = [b"\x7f0000000at", b"t", b"\x7f0000000bt", b"\x7f0000000ct"]
    rows = rows_of([b"\x7f0000000a7" + body, body, b"\x7f0000000b?" + body, b"\x7f0000"], ids=members)
    assert [row["task_id"] for row in rows] == ["t"] * 4
    assert [row["priority"] for row in rows] == [7, 0, 0, 0]
    assert [row["size"] for row in rows[:3]] == [len(body)] * 3
    assert [row["raw"] for row in rows] == [body, body, body, b""]


@pytest.mark.parametrize("kwargs", ['{"a": ", {}]"}', "{}", '{"a": {}}', '{"callbacks": null}', '{"a": "ü"}'])
@pytest.mark.parametrize("args", ["[]", "[1, {}]"])
@pytest.mark.parametrize("is_text", [True, False])
def test_arguments_are_cut_out_of_text_and_of_base64(args: str, kwargs: str, is_text: bool) -> None:
    """A body is in base64, or text that ends with an empty object as with the transport option ``compact``."""
    message = task(f"[{args}, {kwargs}, {{}}]".encode())
    if is_text:
        message = {**message, "body": f"[{args}, {kwargs}, {{}}]", "properties": {"body_encoding": "utf-8"}}
    row = row_of(message)
    assert (row["args"], row["kwargs"]) == (args, kwargs)


def test_a_lost_message_has_a_row() -> None:
    """Of a message that lost its body the row has what is known without it."""
    row = row_of(b"", ids=[b"\x7f0000000at"])
    assert {name: value for name, value in row.items() if value is not None} == {
        "queue": "orders",
        "task_id": "t",
        "due": DUE_AT,
        "layout": "hash",
    }


def test_a_message_beside_another_of_its_id_has_that_id() -> None:
    """Of two tasks of one id both rows have it; an id that only looks so stays as it is."""
    duplicate, other = b"t~0123456789abcdef", b"u~0123456789abcdef"
    rows = rows_of([task(), task(headers={"id": other.decode()}), b""], ids=[duplicate, other, duplicate])
    assert [row["task_id"] for row in rows] == ["t", other.decode(), duplicate.decode()]


@pytest.mark.parametrize("identity", [b"", b"\xff", b"\xed\xb3\xbf", "ü".encode(), b"~" * 17, b"\0"])
def test_any_id(identity: bytes) -> None:
    """An id of any bytes is in its row, with the replacement character for what is no text."""
    assert row_of(b"", ids=[identity])["task_id"] == identity.decode(errors="replace")


@pytest.mark.parametrize(
    ("due", "expected"),
    [
        (b"0", datetime(1970, 1, 1, tzinfo=UTC)),
        (b"-1.5", datetime(1969, 12, 31, 23, 59, 59, 998500, tzinfo=UTC)),
        (DUE, DUE_AT),
        (b"1e300", None),
        (b"-1e300", None),
        (b"inf", None),
        (b"-inf", None),
        (b"253402300800000", None),
    ],
)
def test_a_due_time_that_nothing_can_name_is_null(due: bytes, expected: datetime | None) -> None:
    """Due times are exact to the microsecond, and NULL where they are no datetime in every time zone."""
    rows = ReadRows(Part("q"))
    rows.add(Scanned([b"i"], [due], [2], False), [b"i"], [b"{}"])
    [row] = rows.batch(SCHEMA).to_pylist()
    assert row["due"] == expected


def test_a_huge_message_is_a_row() -> None:
    """A message of many megabytes is read as any other."""
    content = b'[[], {"a": "%s"}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
    row, small = rows_of([task(content % (b"x" * 20_000_000)), task()])
    assert len(row["kwargs"]) == 20_000_009
    assert small["args"] == "[1]"
