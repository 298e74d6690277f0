"""Waiting messages are read as a DataFrame, in Spark."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.read.schema import COLUMNS, COLUMNS_OF
from kombu_delayq.message import DEAD_LETTER, Reason, record
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.messages import task_message
from tests.support.spark.reading import FUTURE_MS, fill, store_of

AT = datetime(2100, 1, 1, tzinfo=UTC)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

#: Reads what waits; keywords are options.
Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, redis_server: PrivateRedis) -> Read:
    def load(schema: str | None = None, **options: Any) -> DataFrame:
        reader = spark.read.format("celery").options(**{"broker_url": redis_server.url, **options})
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def offer(store: DelayStore, identity: str, message: Any, due_ms: float = FUTURE_MS, priority: int = 0) -> bytes:
    """Lets a message wait in the queue ``orders``. Returns it as it will be pushed there."""
    raw = message if isinstance(message, bytes) else json.dumps(message).encode()
    store.delivery.offer("orders", Offer(identity, repr(due_ms), priority, raw))
    return raw


def ids(rows: DataFrame) -> list[str]:
    """Returns the task ids of rows, sorted."""
    return sorted(row["task_id"] for row in rows.collect())


def test_a_task_is_a_row(store: DelayStore, read: Read) -> None:
    """A waiting task has a value in every column, of the types that are documented, and a lost one has NULLs."""
    message = task_message((1,), kwargs={"order": "ü"}, task_id="t", eta=AT, retries=2)
    raw = offer(store, "t", message, FUTURE_MS + 0.123, priority=6)
    offer(store, "lost", b"x")
    store.client.hdel(store.keys.bodies("orders"), "lost")
    found = read()
    assert {field.name: field.dataType for field in found.schema} == COLUMNS
    lost, row = sorted(found.collect(), key=lambda row: str(row.task_id))
    assert (lost.task_id, lost.task, lost.raw, lost.size, lost.priority) == ("lost", None, None, None, None)
    assert row.due.astimezone(UTC) == AT + timedelta(microseconds=123)
    assert bytes(row.raw) == raw
    assert row.asDict() | {"due": None, "raw": None} == {
        "queue": "orders",
        "task": "proj.task",
        "task_id": "t",
        "due": None,
        "eta": AT.isoformat(),
        "priority": 6,
        "retries": 2,
        "args": "[1]",
        "kwargs": '{"order": "\\u00fc"}',
        "size": len(raw),
        "raw": None,
        "layout": "hash",
    }


def test_spark_applies_filters(store: DelayStore, read: Read, pushdown: None) -> None:
    """Where Spark would hand filters over, it applies them itself, to each query of a DataFrame anew."""
    fill(store, "a", 3)
    fill(store, "b", 3)
    found = read()
    for queue in "ba":
        assert ids(found.filter(f.col("queue") == queue)) == [f"{queue}-{n:05}" for n in range(3)]


def test_a_view_has_what_waits_at_each_query(
    spark: SparkSession, redis_server: PrivateRedis, store: DelayStore
) -> None:
    """A query of a view, or of a DataFrame that was used before, has messages of queues that came later."""
    fill(store, "a", 3)
    options = f"OPTIONS (broker_url '{redis_server.url}', columns 'queue,due')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW waiting USING celery {options}")
    counted = "SELECT QUEUE, count(*) FROM waiting WHERE due > now() GROUP BY queue ORDER BY queue"
    assert spark.sql(counted).collect() == [("a", 3)]
    fill(store, "b", 2)
    assert spark.sql(counted).collect() == [("a", 3), ("b", 2)]
    frame = spark.table("waiting")
    assert frame.count() == 5
    fill(store, "c", 4)
    assert frame.count() == 9


def test_a_replica_is_read_instead(redis_server: PrivateRedis, store: DelayStore, read: Read) -> None:
    """With ``replica_url`` everything is read from a replica, which takes no writes; the primary is not asked."""
    expected = fill(store, "q", 100, same=9)
    with PrivateRedis("--replicaof", "127.0.0.1", str(redis_server.port)) as replica:
        until(lambda: store_of(replica).queues.size("q") == 100)
        found = read(replica_url=replica.url, broker_url="redis://127.0.0.1:1/0", partitions=3, page_size=10)
        assert ids(found) == expected
        assert store_of(replica).client.info("replication")["role"] == "slave"


def test_dead_letters_are_a_dataframe(read: Read, client: redis.Redis) -> None:
    """They are grouped by why they are there, by their columns or by a schema."""
    for number in range(5):
        message = task_message((number,))
        message["properties"][DEAD_LETTER] = record(Reason.FAILED, f"E{number % 2}: no answer")
        client.lpush("failed", json.dumps(message))
    found = read(messages="dead_letters", queue="failed")
    assert {field.name: field.dataType for field in found.schema} == COLUMNS_OF["dead_letters"]
    counted = found.groupBy("reason", f.split("error", ":")[0].alias("kind")).count().orderBy("kind").collect()
    assert [tuple(row) for row in counted] == [("failed", "E0", 3), ("failed", "E1", 2)]
    assert (
        read("at timestamp, worker string", messages="dead_letters", queue="failed").where("at <= now()").count() == 5
    )
    assert read(messages="dead_letters").count() == 0  # nobody has noted that queue


@pytest.mark.parametrize("layout", ["hash", "redisson"])
def test_what_is_written_can_be_read(
    spark: SparkSession, redis_server: PrivateRedis, read: Read, client: redis.Redis, layout: str
) -> None:
    """Rows that were written as tasks, in either layout, are read as they wait."""
    rows = [(n, AT + timedelta(minutes=n)) for n in range(20)]
    written = spark.createDataFrame(rows, "order_id int, eta timestamp")
    options = {"broker_url": redis_server.url, "task": "orders.close", "queue": "orders", "id_columns": "order_id"}
    transport = {"broker_transport_options": json.dumps({"layout": layout})}
    written.write.format("celery").options(**options, **transport).mode("append").save()
    assert client.zcard(LAYOUT_OF[layout].keys(Keys(), "orders")[0]) == 20
    found = read(partitions=3, **transport).withColumn(
        "order_id", f.get_json_object("kwargs", "$.order_id").cast("int")
    )
    assert sorted((row.order_id, row.due) for row in found.collect()) == sorted(
        (row.order_id, row.eta) for row in written.collect()
    )
    assert {(row.task, row.queue) for row in found.collect()} == {("orders.close", "orders")}
