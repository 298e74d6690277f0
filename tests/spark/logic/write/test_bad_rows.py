"""Rows that make no task are named, with column, row and value, and become no message but a dead letter."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from kombu.serialization import registry

from celery_ext.dead_letters import DeadLetter, letters
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import task_id
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.batch import BatchMessages
from celery_ext.spark.write.dead_letters import NO_TASK
from tests.support.spark import apps
from tests.support.spark.landing import open_store, send
from tests.support.spark.making import TASK, batch_of, builder_of, errors_of, made_of, offers_of, seen

DEAD = {"on_bad_row": "dead_letter", "dead_letter_queue": "dead"}
FAR = 2**60
OUT_OF_RANGE = f"'<value out of range: {FAR}>"
TOO_DEEP = "[" * 100_000 + "]" * 100_000


def far(kind: pa.DataType) -> pa.Array:
    return pa.array([FAR], pa.int64()).cast(kind)


TWICE = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
ZONED, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
TIMES = pa.ListArray.from_arrays([0, 1], far(ZONED))
NO_TEXT = pa.array([b"\xffA"]).cast(pa.string(), safe=False)
NO_TEXTS = pa.ListArray.from_arrays([0, 1], NO_TEXT)
DAYS = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())

#: Columns, and of the fault the column, what it shows of the value, and a part of the reason.
BAD: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "op": ({"op": ["remove"], "task_id": ["x"]}, "op", "'remove'", "neither enqueue nor cancel"),
    "op empty": ({"op": [""], "task_id": ["x"]}, "op", "''", "neither enqueue nor cancel"),
    "task empty": ({"task": [""]}, "task", "''", "is empty"),
    "task blank": ({"task": [" "]}, "task", "' '", "is empty"),
    "task_id empty": ({"task_id": [""]}, "task_id", "''", "is empty"),
    "args no JSON": ({"args": ["[1"]}, "args", "'[1'", "Expecting"),
    "args no array": ({"args": ['{"a": 1}']}, "args", "'{\"a\": 1}'", "is not a JSON array"),
    "args too deep": ({"args": [TOO_DEEP]}, "args", "'[[[", "recursion"),
    "args too large a number": ({"args": ["[" + "1" * 5000 + "]"]}, "args", "'[111", "digits"),
    "args null": ({"args": ["null"]}, "args", "'null'", "is not a JSON array"),
    "kwargs no JSON": ({"kwargs": ["x"]}, "kwargs", "'x'", "Expecting"),
    "kwargs no object": ({"kwargs": ["[1]"]}, "kwargs", "'[1]'", "is not a JSON object"),
    "kwargs with a key twice": ({"kwargs": TWICE}, "kwargs", '\'keys: [ "a", "a" ]', "duplicate key was 'a'"),
    "eta too late": ({"eta": far(ZONED)}, "eta", f"'{FAR} µs", "not a time from the year 1"),
    "eta too early": (
        {"eta": pa.array([-FAR], pa.int64()).cast(LOCAL)},
        "eta",
        f"'-{FAR} µs",
        "not a time from the year 1",
    ),
    "countdown NaN": ({"countdown": [math.nan]}, "countdown", "nan", "not a number of seconds"),
    "countdown inf": ({"countdown": [math.inf]}, "countdown", "inf", "not a number of seconds"),
    "countdown too long": ({"countdown": [253402300799]}, "countdown", "253402300799", "up to the year 9999"),
    "countdown too early": ({"countdown": [-1e12]}, "countdown", "-1000000000000.0", "up to the year 9999"),
    "delay_level": ({"delay_level": [-1]}, "delay_level", "-1", "a delay level is a whole number from 0"),
    "expires NaN": ({"expires": [math.nan]}, "expires", "nan", "not a number of seconds"),
    "expires too late": ({"expires": [253402300799]}, "expires", "253402300799", "up to the year 9999"),
    "expires at a time too late": ({"expires": far(ZONED)}, "expires", f"'{FAR} µs", "not a time from the year 1"),
    "queue empty": ({"queue": [""]}, "queue", "''", "is empty"),
    "queue blank": ({"queue": ["\t"]}, "queue", "'\\t'", "is empty"),
    "priority too high": ({"priority": [10]}, "priority", "10", "is not a priority from 0 to 9"),
    "priority too low": ({"priority": [-1]}, "priority", "-1", "is not a priority from 0 to 9"),
    "headers no JSON": ({"headers": ["{"]}, "headers", "'{'", "Expecting"),
    "headers no object": ({"headers": ["1"]}, "headers", "'1'", "is not a JSON object"),
    "headers of Celery": ({"headers": ['{"eta": 1, "id": 2}']}, "headers", '\'{"eta"', "Celery itself writes: eta, id"),
    "headers with a key twice": ({"headers": TWICE}, "headers", "'keys", "duplicate key was 'a'"),
    "delay_chain": ({"delay_chain": ["4m,x"]}, "delay_chain", "'4m,x'", "x"),
    "time_limit 0": ({"time_limit": [0]}, "time_limit", "0", "is not a time limit"),
    "time_limit NaN": ({"time_limit": [math.nan]}, "time_limit", "nan", "is not a time limit"),
    "soft_time_limit": ({"soft_time_limit": [-0.5]}, "soft_time_limit", "-0.5", "is not a time limit"),
    "a time too late": ({"at": far(ZONED)}, "at", OUT_OF_RANGE, "out of range"),
    "a local time too late": ({"at": far(LOCAL)}, "at", OUT_OF_RANGE, "out of range"),
    "a time too late in an array": ({"at": TIMES}, "at", f"'[ {OUT_OF_RANGE[1:]}", "out of range"),
    "a text in no UTF-8": ({"text": NO_TEXT}, "text", "'", "is not valid UTF-8"),
    "a text in no UTF-8 in an array": ({"a": NO_TEXTS}, "a", "'[ ", "is not valid UTF-8"),
    "a task in no UTF-8": ({"task": NO_TEXT}, "task", "'", "is not valid UTF-8"),
    "a date too late": ({"day": DAYS}, "day", "'<value out of range: 2147483647>'", "days"),
    "a map with a key twice": ({"m": TWICE}, "m", "'keys", "duplicate key was 'a'"),
}


@pytest.mark.parametrize(("columns", "column", "value", "reason"), BAD.values(), ids=BAD)
def test_a_bad_row_is_named(columns: dict[str, Any], column: str, value: str, reason: str) -> None:
    """The fault says which column and row it is, what stands there, and why it makes no task; there is no message."""
    made = made_of(batch_of(**columns, **({} if "kwargs" in columns else {"id": [7]})), **DEAD)
    [fault] = errors_of(made)
    letter = letter_of(made)
    told, _, row = fault.rpartition(" (row ")
    assert row.removesuffix(")") or "task_id" in columns
    assert told.startswith(f"column {column}, value {value}")
    assert reason in told
    assert len(fault) < 600
    assert letter.error == fault


def test_rows_without_an_id_are_bad_rows_and_not_one_task() -> None:
    """Rows whose id columns are all NULL would share an id; each is a bad row, with a dead letter of its own."""
    batch = batch_of(
        a=pa.array([None, None, 1, None, None], pa.int64()),
        b=[None, None, None, "x", None],
        task_id=[None, None, None, None, "mine"],
        op=["enqueue", "cancel", None, None, None],
        n=[1, 2, 3, 4, 5],
    )
    made = made_of(batch, id_columns="a,b", **DEAD)
    assert {str(offer.id) for offer in made.offers["celery"]} == {
        task_id(TASK, 1, None),
        task_id(TASK, None, "x"),
        "mine",
    }
    assert made.cancelled == []
    faults, letters = zip(*made.bad_rows, strict=True)
    assert all(fault.startswith("column a and b, value None: is NULL") for fault in faults)
    assert len({letter.id for letter in letters}) == 2


@pytest.mark.parametrize("how", [{"spread": "10m"}, {"countdown": "1s"}])
def test_rows_without_an_id_are_bad_rows_in_each_way_to_make_messages(how: dict[str, str]) -> None:
    """Also where a batch is sorted by due time first."""
    batch = batch_of(a=pa.array([None, 1, None], pa.int64()), n=[1, 2, 3])
    builder = builder_of(batch.schema, base_ms=0, id_columns="a", **how)
    parts = list(builder.parts(batch, 2))
    assert sum(len(part.bad_rows) for part in parts) == 2
    assert [str(offer.id) for part in parts for offers in part.offers.values() for offer in offers] == [
        task_id(TASK, 1)
    ]


@pytest.mark.parametrize("given", ["", "x", "0" * 31, b"abc", b""])
def test_what_is_no_uuid_is_named(given: str | bytes) -> None:
    """A text or bytes in a UUID column that are none would reach the task as something else."""
    made = made_of(batch_of(id=[1], u=[given]), uuid_columns="u", id_columns="id")
    [fault] = errors_of(made)
    assert fault.startswith("column u, value ")
    assert fault.endswith(f" (row {task_id(TASK, 1)})")


@pytest.mark.parametrize("serializer", ["yaml", "msgpack"])
def test_what_a_serializer_cannot_write_is_named(serializer: str) -> None:
    """A value that the app's serializer has no form for is a fault of its row alone."""
    app = apps.make("serializing", task_serializer=serializer)
    made = made_of(batch_of(id=[1, 2], d=[Decimal(1), None]), apps.settings_of(app), id_columns="id")
    [(fault, _)] = made.bad_rows
    assert fault.startswith("value ")
    assert fault.endswith(f" (row {task_id(TASK, 1)})")
    assert f"cannot be written as {serializer}" in fault
    assert [offer.id for _, offer in offers_of(made._replace(bad_rows=[]))] == [task_id(TASK, 2)]


@pytest.mark.parametrize("depth", range(900, 1010, 3))
def test_arguments_of_any_depth_make_a_message_or_a_fault(depth: int) -> None:
    """However deep JSON is nested, where Python can just read or just not write it, nothing else breaks."""
    made = made_of(batch_of(args=["[" * depth + "]" * depth], id=[1]))
    assert len(made.bad_rows) + sum(map(len, made.offers.values())) == 1


def test_a_row_without_a_task_is_named() -> None:
    """A NULL in the column task, with no option to take its place, names no task."""
    made = made_of(batch_of(task=pa.array([None, "t"], pa.string()), id=[1, 2]), task=None)
    [(fault, _)] = made.bad_rows
    assert fault.startswith("column task, value None: names no task (row ")
    assert sum(map(len, made.offers.values())) == 1


def test_a_row_that_is_due_too_late_is_named() -> None:
    """A due time beyond the transport option max_delay is a fault, by column or by option."""
    for columns, options in (({"countdown": [61]}, {}), ({"id": [1]}, {"countdown": "61"})):
        made = made_of(batch_of(**columns), max_delay=60, **options)  # type: ignore[arg-type]
        assert (
            "value 'due 61 s after the job began': later than the transport option max_delay allows"
            in (errors_of(made)[0])
        )


def test_a_task_that_goes_to_several_queues_or_none_is_named() -> None:
    """The queue of a row that a topic exchange hands to two queues, or that the app does not have, is its fault."""
    app = apps.make(
        "bound", task_queues=apps.TWO_OF_A_TOPIC, task_default_queue="all", task_create_missing_queues=False
    )
    settings = apps.settings_of(app)
    both = made_of(batch_of(id=[1]), settings, queue="both")
    assert "goes to several queues or none (all, both): name one" in errors_of(both)[0]
    none = made_of(batch_of(queue=["other"], id=[1]), settings)
    assert "column queue, value 'other'" in errors_of(none)[0]
    assert "Queue 'other' missing from task_queues" in errors_of(none)[0]


def test_good_rows_beside_bad_ones_become_messages() -> None:
    """A fault leaves out its row alone, in order, and one that has several is named once."""
    priorities, headers = [1, 10, 2, 99], ["{}", "{}", None, "x"]
    made = made_of(batch_of(id=[1, 2, 3, 4], priority=priorities, headers=headers), id_columns="id")
    assert [offer.id for _, offer in offers_of(made._replace(bad_rows=[]))] == [task_id(TASK, 1), task_id(TASK, 3)]
    assert [fault.rpartition("(")[2] for fault, _ in made.bad_rows] == [f"row {task_id(TASK, n)})" for n in (2, 4)]
    assert all(letter is None for _, letter in made.bad_rows)


def test_a_long_value_is_cut_in_the_fault() -> None:
    """A fault shows the begin and the end of a value of any length."""
    [fault] = errors_of(made_of(batch_of(kwargs=["[" + "x" * 100_000])))
    assert len(fault) < 400


ROW: dict[str, Any] = {
    "priority": [77],
    "day": [date(2024, 2, 29)],
    "price": [Decimal("1.50")],
    "at": [datetime(2024, 2, 29, tzinfo=UTC)],
    "raw": [b"\xff"],
    "u": [str(UUID(int=3))],
    "rows": [[{"a": None}]],
}


def letter_of(made: BatchMessages) -> DeadLetter:
    """Returns the only dead letter."""
    [(_, offer)] = made.bad_rows
    assert offer is not None
    return DeadLetter("dead", str(offer.body).encode())


@pytest.mark.parametrize("conf", [{}, *({"task_serializer": each} for each in ("yaml", "msgpack", "pickle"))])
def test_a_dead_letter_is_the_row(conf: dict[str, Any]) -> None:
    """A dead letter names the task and has the whole row as arguments, in what the app's workers can read."""
    settings = apps.settings_of(apps.make("burying", **conf, task_compression="gzip"))
    made = made_of(batch_of(**ROW), settings, uuid_columns="u", id_columns="u", **DEAD)
    letter = letter_of(made)
    assert letter.name == TASK
    assert letter.reason == "bad row"
    assert (letter.exchange, letter.routing_key, letter.retries) == ("", "celery", 0)
    assert letter.at is not None
    args, kwargs, _ = seen(json.loads(letter.message))["body"]
    assert args == []
    assert kwargs["priority"] == 77
    assert kwargs.keys() == ROW.keys()
    if not conf:
        expected = {name: values[0] for name, values in ROW.items()} | {"u": UUID(int=3)}
        assert letter.task.kwargs == kwargs == expected


def test_a_dead_letter_that_the_serializer_cannot_write_is_in_json() -> None:
    """A dead letter has the row as arguments, also where the serializer of its task has no form for any arguments."""

    def write(body: tuple[Any, dict[str, Any], Any]) -> bytes:
        if body[1]:
            raise ValueError("no arguments")
        return b"nothing"

    registry.register("picky", write, None, "application/x-picky", "binary")
    try:
        settings = apps.settings_of(apps.make("picking", task_serializer="picky", task_compression="gzip"))
        letter = letter_of(made_of(batch_of(id=[7]), settings, **DEAD))
    finally:
        registry.unregister("picky")
    message = json.loads(letter.message)
    assert message["content-type"] == "application/json"
    assert (letter.name, letter.routing_key, seen(message)["body"][:2]) == (TASK, "celery", [[], {"id": 7}])


def test_a_dead_letter_of_a_task_that_expires_does_not() -> None:
    """A dead letter is kept for as long as its owner wants, with no expiry and no property of one."""
    app = apps.make("expiring")
    apps.task(app, expires=60)
    message = json.loads(letter_of(made_of(batch_of(priority=[10]), apps.settings_of(app), **DEAD)).message)
    assert message["headers"]["expires"] is None
    assert "expiration" not in message["properties"]


def test_a_dead_letter_of_no_task_says_so() -> None:
    """A row that names no task is kept under a name of its own, and came from nowhere."""
    letter = letter_of(made_of(batch_of(task=[" "], id=[1]), task=None, **DEAD))
    assert letter.name == NO_TASK
    assert letter.routing_key is None


def test_a_dead_letter_has_the_same_id_in_every_attempt() -> None:
    """A bad row has one dead letter, however often it is tried, which is not the id of the task itself."""
    found = [letter_of(made_of(batch_of(id=[1], priority=[10]), id_columns="id", **DEAD)).id for _ in range(2)]
    assert found[0] == found[1] != task_id(TASK, 1)


def test_a_dead_letter_can_be_replayed(redis_server: PrivateRedis) -> None:
    """A dead letter goes back to the queue that its row would have gone to, as a message that Celery would send."""
    options = {"queue": "orders", **DEAD}
    made = made_of(batch_of(id=[1], priority=[10]), **options)
    [(_, offer)] = made.bad_rows
    assert offer is not None
    server = redis_server.client()
    server.flushall()
    with open_store(redis_server) as store:
        send(store, {"dead": [offer]}, WriteOptions.parse(options))
        [letter] = letters.browse(store, "dead")

        def decide(letter: DeadLetter) -> Any:
            assert letter.routing_key is not None
            return letters.to_queue(letter, letter.routing_key, as_before=True)

        wanted, _ = letters.choose([letter], lambda _: True, decide)
        assert len(list(letters.replay(store, "dead", wanted, decide))) == 1
    assert server.llen("dead") == 0
    replayed = json.loads(str(server.lindex("orders", 0)))
    good = json.loads(str(offers_of(made_of(batch_of(id=[1]), queue="orders"))[0][1].body))
    assert seen(replayed)["properties"].keys() == seen(good)["properties"].keys()
    assert replayed["properties"]["delivery_info"] == good["properties"]["delivery_info"]
    assert seen(replayed)["headers"].keys() == seen(good)["headers"].keys()
