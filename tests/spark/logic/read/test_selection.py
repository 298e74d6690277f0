"""Which messages are read, and with which columns."""

from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import CeleryDataSource
from celery_ext.spark.errors import BrokerUnavailable, InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import ReadOptions
from celery_ext.spark.read.reader import WaitingReader
from celery_ext.spark.read.schema import COLUMNS, schema_of
from kombu_delayq.errors import DelayqError
from tests.support.spark.reading import fill, reader_of, rows_of, store_of

URL = "redis://127.0.0.1:1/0"
TYPES = {each.simpleString(): each for each in (LongType(), StringType(), TimestampNTZType(), TimestampType())}


def test_spark_is_offered_no_filters() -> None:
    """Spark would keep the filters of one query for the next one of the same DataFrame, so a reader takes none."""
    assert WaitingReader.pushFilters is DataSourceReader.pushFilters


def test_all_columns_or_those_that_the_option_names() -> None:
    """The schema has the columns in the order of the option, all of them without it."""
    assert schema_of(ReadOptions()).fieldNames() == list(COLUMNS)
    assert CeleryDataSource({"broker_url": URL, "columns": "due, task"}).schema().fieldNames() == ["due", "task"]


def test_columns_are_named_in_any_case(redis_server: PrivateRedis, client: Any) -> None:
    """A column that is named in another case, as in Spark's own queries, is that column under the name given."""
    store = store_of(redis_server)
    expected = fill(store, "q", 3)
    reader = reader_of(redis_server, columns="TASK_ID,Queue,RAW")
    rows = [row for part in reader.partitions() for row in rows_of(reader, part)]
    assert [(row["TASK_ID"], row["Queue"], row["RAW"][:4]) for row in rows] == [
        (each, "q", b"body") for each in expected
    ]
    with pytest.raises(InvalidSparkOption, match="columns names a column twice: due, DUE"):
        schema_of(ReadOptions(columns=("due", "DUE")))
    given = StructType([StructField("Due", TimestampType()), StructField("DUE", TimestampType())])
    with pytest.raises(InvalidColumns, match="a column twice"):
        CeleryDataSource({"broker_url": URL}).reader(given)
    CeleryDataSource({"broker_url": URL, "columns": "due"}).reader(StructType(given.fields[:1]))
    store.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"columns": "due,tusk"}, r"columns names tusk, which is not a column \(did you mean task\?\)"),
        ({"columns": "due,due"}, "columns names a column twice: due, due"),
        ({"columns": "due", "messages": "ready"}, "columns names due, which is not a column"),
        ({"messages": "dead"}, "messages='dead' is not one of"),
        ({"path": "/a"}, "path is not an option: tasks are in queues, not in files"),
        ({"paths": '["/a", "/b"]'}, "paths is not an option: tasks are in queues, not in files"),
        ({"owner": "me", "provider": "celery"}, "has no tables .* CREATE TEMPORARY VIEW … USING celery"),
        ({"task": "orders.close"}, "options for writing tasks"),
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
        ({"broker_url": URL, "messages": "ready"}, "messages=ready needs the option queue"),
        (
            {"broker_url": URL, "messages": "dead_letters", "due_after": "2030-01-02", "partitions": "3"},
            "due_after, partitions: only messages that wait have that, not dead_letters",
        ),
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
    columns = schema_of(ReadOptions(columns=("task",)))
    with pytest.raises((InvalidSparkOption, BrokerUnavailable), match=message) as told:
        CeleryDataSource(given).reader(columns).partitions()
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            "due timestamp, tusk string",
            r"has tusk, which is not a column \(did you mean task\?\).*There are: queue string",
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
    source.reader(
        schema_of(
            ReadOptions(
                columns=(
                    "task",
                    "due",
                )
            )
        )
    )
    with pytest.raises(InvalidColumns, match="the schema given has due, the option columns has due, task; give one"):
        source.reader(schema_of(ReadOptions(columns=("due",))))


def test_errors_are_of_one_root() -> None:
    """Who calls the data source can catch all its errors as one."""
    assert all(issubclass(each, DelayqError) for each in (InvalidColumns, InvalidSparkOption, BrokerUnavailable))
