"""Which messages are read, by options and by filters that Spark hands over, and with which columns."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from celery_ext.private_redis import PrivateRedis
from celery_ext.spark import CeleryDataSource
from celery_ext.spark.errors import BrokerUnavailable, InvalidColumns, InvalidSparkOption
from celery_ext.spark.filters import Selection
from celery_ext.spark.options import ReadOptions
from celery_ext.spark.reader import PushingReader
from celery_ext.spark.waiting_columns import COLUMNS, schema_of
from kombu_delayq.errors import DelayqError
from tests.spark.logic.reading import fill, reader_of, rows_of, store_of

URL = "redis://127.0.0.1:1/0"
AT = datetime(2100, 1, 1, tzinfo=UTC)
AT_MS = 4_102_444_800_000.0
QUEUE, DUE = ("queue",), ("due",)
TYPES = {each.simpleString(): each for each in (LongType(), StringType(), TimestampNTZType(), TimestampType())}


@pytest.mark.parametrize(
    ("pushed", "queues"),
    [
        ([EqualTo(QUEUE, "a")], ("a",)),
        ([In(QUEUE, ("b", "a", "b"))], ("b", "a")),
        ([In(QUEUE, ("b", "a")), EqualTo(QUEUE, "a")], ("a",)),
        ([EqualTo(QUEUE, "b"), EqualTo(QUEUE, "a")], ()),
        ([IsNotNull(QUEUE)], None),
        ([], None),
    ],
)
def test_filters_on_the_queue_are_applied_here(pushed: list[Filter], queues: tuple[str, ...] | None) -> None:
    """Equality and IN say which queues are read, and Spark need not apply them again."""
    assert Selection().narrowed(pushed) == (Selection(queues), [])


@pytest.mark.parametrize(
    ("pushed", "from_ms", "to_ms"),
    [
        (GreaterThan(DUE, AT), AT_MS, inf),
        (GreaterThanOrEqual(DUE, AT.astimezone()), AT_MS, inf),
        (LessThan(DUE, AT), -inf, AT_MS),
        (LessThanOrEqual(DUE, AT), -inf, AT_MS),
        (EqualTo(DUE, AT), AT_MS, AT_MS),
        (In(DUE, (AT, AT - timedelta(seconds=2), AT - timedelta(seconds=1))), AT_MS - 2000, AT_MS),
    ],
)
def test_filters_on_the_due_time_bound_it(pushed: Filter, from_ms: float, to_ms: float) -> None:
    """Comparisons of the due time bound it with a margin, and Spark applies them again."""
    selection, rest = Selection().narrowed([pushed])
    assert rest == [pushed]
    assert (selection.from_ms, selection.to_ms) == (from_ms - 1, to_ms + 1)


@pytest.mark.parametrize(
    "pushed",
    [
        Not(EqualTo(QUEUE, "a")),
        StringStartsWith(QUEUE, "a"),
        In(QUEUE, ("a", None)),
        EqualTo(QUEUE, None),
        EqualNullSafe(QUEUE, "a"),
        EqualTo(("task",), "a"),
        IsNull(DUE),
        IsNotNull(DUE),
        Not(LessThan(DUE, AT)),
        EqualTo(("priority",), 3),
        In(DUE, ()),
        EqualTo(("queue", "part"), "a"),
    ],
)
def test_other_filters_are_left_to_spark(pushed: Filter) -> None:
    """A filter that cannot be applied to Redis changes nothing and is Spark's."""
    assert Selection(("q",)).narrowed([pushed]) == (Selection(("q",)), [pushed])


def test_filters_narrow_what_options_say() -> None:
    """Filters and options together leave what both want."""
    options = ReadOptions.parse({"queue": "a,b", "due_after": "2099-12-31", "due_before": "2100-01-02"})
    selection, _ = Selection.of(options).narrowed([In(QUEUE, ("b", "c")), LessThan(DUE, AT), GreaterThan(DUE, AT)])
    assert selection == Selection(("b",), AT_MS - 1, AT_MS + 1)
    wide = [LessThan(DUE, AT + timedelta(days=9)), GreaterThan(DUE, AT - timedelta(days=9))]
    assert Selection.of(options).narrowed(wide)[0] == Selection.of(options)


def test_a_reader_takes_filters_only_if_it_is_to(redis_server: PrivateRedis, client: Any) -> None:
    """With the option a reader reads what filters leave; without it, it has no method of its own for them."""
    store = store_of(redis_server)
    for queue in "ab":
        fill(store, queue, 3)
    reader = reader_of(redis_server, push_filters=True)
    assert isinstance(reader, PushingReader)
    moment = AT + timedelta(milliseconds=1.5)
    assert list(reader.pushFilters([EqualTo(QUEUE, "b"), GreaterThan(DUE, moment)])) == [GreaterThan(DUE, moment)]
    rows = [row["task_id"] for part in reader.partitions() for row in rows_of(reader, part)]
    assert rows == ["b-00001", "b-00002"]  # the first of these within the margin
    assert "pushFilters" not in vars(type(reader_of(redis_server)))
    store.close()


def test_all_columns_or_those_that_the_option_names() -> None:
    """The schema has the columns in the order of the option, all of them without it."""
    assert schema_of(None).fieldNames() == list(COLUMNS)
    assert CeleryDataSource({"broker_url": URL, "columns": "due, task"}).schema().fieldNames() == ["due", "task"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": "due,tusk"}, r"columns names tusk, which is no column \(did you mean task\?\)"),
        ({"columns": "due,due"}, "columns names a column twice: due, due"),
        ({"colums": "due"}, r"colums is none \(did you mean columns\?\)"),
        ({"page_size": "0"}, "page_size='0' is not a whole number from 1 to 5000"),
        ({"page_size": "5001"}, "is not a whole number"),
        ({"partitions": "none"}, "partitions='none' is not a whole number"),
        ({"due_after": "tomorrow"}, "due_after='tomorrow' is not a time in ISO 8601"),
        ({"push_filters": "yes"}, "push_filters='yes' is not true or false"),
        ({"queue": "a,,b"}, "queue='a,,b' is empty"),
        ({"task": "orders.close"}, "task is none"),
    ],
)
def test_a_wrong_option_is_told_when_the_schema_is_asked_for(given: dict[str, str], message: str) -> None:
    """Options that are unknown or wrong are named with what is to be done, already at ``load()``."""
    with pytest.raises(InvalidSparkOption, match=message):
        CeleryDataSource({"broker_url": URL, **given}).schema()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "which broker"),
        ({"broker_url": URL, "due_after": "2030-01-02", "due_before": "2030-01-01T12:00"}, "is later than due_before="),
        ({"broker_url": "redis://:secret@h/0"}, "broker_url has a password"),
        ({"replica_url": "redis://:secret@h/0"}, "replica_url has a password.* as replica_url_env"),
        ({"replica_url": URL, "replica_url_env": "NAME"}, "Give either replica_url or replica_url_env"),
        ({"broker_url_env": "DELAYQ_NO_SUCH"}, "DELAYQ_NO_SUCH.* is not set"),
        ({"replica_url_env": "DELAYQ_NO_SUCH"}, "DELAYQ_NO_SUCH.* is not set"),
        ({"celery_app": "no.such.app"}, "celery_app='no.such.app' cannot be loaded"),
        ({"broker_url": URL}, "the broker redis://127.0.0.1:1/0 cannot be used"),
        ({"broker_url": URL, "replica_url": "redis://127.0.0.1:2/0"}, "redis://127.0.0.1:2/0 cannot be used"),
    ],
)
def test_what_cannot_be_read_is_told_by_the_driver(given: dict[str, str], message: str) -> None:
    """Wrong or missing brokers and bounds are told before any task starts, without a password."""
    with pytest.raises((InvalidSparkOption, BrokerUnavailable), match=message) as told:
        CeleryDataSource(given).reader(schema_of(None)).partitions()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "due timestamp, tusk string",
            r"has tusk, which is no column \(did you mean task\?\).*There are: queue string",
        ),
        ("due string", "has due as string, which is of type timestamp"),
        ("due timestamp_ntz", "has due as timestamp_ntz, which is"),
        ("size bigint, raw string", "has size as bigint, which is of type int; raw as string, which is of type binary"),
        ("due timestamp, due timestamp", "a column twice"),
        ("", "no column"),
    ],
)
def test_a_schema_with_other_columns_is_refused(schema: str, message: str) -> None:
    """A schema that the user gives has columns of waiting messages, each once, of their types."""
    fields = [each.split() for each in schema.split(", ") if each]
    given = StructType([StructField(name, TYPES[kind]) for name, kind in fields])
    with pytest.raises(InvalidColumns, match=message):
        CeleryDataSource({"broker_url": URL}).reader(given)


def test_a_schema_and_the_option_agree() -> None:
    """A schema is refused when the option ``columns`` names others."""
    source = CeleryDataSource({"broker_url": URL, "columns": "due,task"})
    source.reader(schema_of(["task", "due"]))
    with pytest.raises(InvalidColumns, match="the schema given has due, the option columns due, task; give one"):
        source.reader(schema_of(["due"]))


def test_errors_are_of_one_root() -> None:
    """Who calls the data source can catch all its errors as one."""
    assert all(issubclass(each, DelayqError) for each in (InvalidColumns, InvalidSparkOption, BrokerUnavailable))
