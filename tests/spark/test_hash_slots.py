"""Jobs and readers of a real Spark where Redis is a cluster of several nodes."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
import redis
from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import task_id
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.spark.child import Broker
from tests.support.spark.jobs import append, append_stepped, numbers
from tests.support.spark.session import SparkLog
from tests.support.spark.stepped import Journal, attempt

ORDERS = [f"orders.{number}" for number in range(8)]
ROWS = 80


def kill_once(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """The process of the first attempt of partition 0 is killed after 20 rows."""
    context = TaskContext.get()
    assert context is not None
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if (context.partitionId(), context.attemptNumber(), rows) == (0, 0, 20):
            journal.note(f"killed: {attempt()}")
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def slotted(cluster: PrivateCluster) -> Iterator[tuple[str, redis.Redis]]:
    """Broker URL, and a client, of an empty cluster of three nodes that all have queues."""
    assert len({cluster.node_of(queue) for queue in (*ORDERS, "mails", "q")}) == 3
    with cluster.client() as client:
        yield cluster.url, client


def queue_of(number: int) -> str:
    """Returns the queue of a row: one of ``ORDERS``, or that of its column, or that of the option."""
    return (ORDERS[number // 4 % 8], "mails", "orders.3", "q")[number % 4]


def waits(number: int) -> bool:
    """Whether a row is due later."""
    return number % 8 < 4


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """Rows for a queue in shards and for two others; half of them are due later."""
    shard = "concat('orders.', cast(id / 4 AS int) % 8)"
    queue = f"element_at(array({shard}, 'mails', 'orders.3', NULL), cast(id % 4 AS int) + 1) AS queue"
    return spark.range(0, ROWS, 1, 2).selectExpr("id", queue, "if(id % 8 < 4, 3600, NULL) AS countdown")


def test_each_row_is_sent_and_read_once(
    spark: SparkSession,
    frame: DataFrame,
    slotted: tuple[str, redis.Redis],
    redis_server: PrivateRedis,
    client: redis.Redis,
    spark_log: SparkLog,
) -> None:
    """A job with a Python worker that is killed half way sends each row once to its slot; a reader has each once."""
    url, broker_client = slotted
    options = {"job_id": "nightly", "id_columns": "id", "chunk_size": 2}
    broker = Broker(url, redis_server.port)
    append_stepped(frame, broker, kill_once, **options)
    assert Journal(redis_server.port).lines("killed") == ["killed: partition 0, attempt 0"]
    ready = [(number, queue) for queue in (*ORDERS, "mails", "q") for number in numbers(broker_client, queue)]
    assert sorted(ready) == [(number, queue_of(number)) for number in range(ROWS) if not waits(number)]
    told = until(
        lambda: re.search(
            rf"job nightly is committed: {ROWS} rows, {ROWS} messages in all, (\d+) sent before\n", spark_log()
        )
    )
    assert 10 <= int(told[1]) <= 20  # what the killed process had sent

    append(frame, broker, on_committed="skip", **options)
    until(lambda: f"with {ROWS} tasks; this run has sent nothing\n" in spark_log())

    def read(**options: str) -> DataFrame:
        return spark.read.format("celery").options(broker_url=url, partitions="3", **options).load()

    number = f.get_json_object("kwargs", "$.id").cast("int").alias("number")
    rows = sorted(tuple(row) for row in read().select(number, "queue", "task_id").collect())
    assert rows == [(number, queue_of(number), task_id("t", number)) for number in range(ROWS) if waits(number)]
