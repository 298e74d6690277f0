from collections.abc import Iterator

import pytest
import redis
from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.spark.jobs import append, append_stepped, beside, delayed, numbers
from tests.support.spark.session import SparkLog
from tests.support.spark.stepped import Journal

#: How long a part of a job of Spark may take on a busy machine, in s.
PATIENCE_S = 100.0
#: Keys of a job that has ended, or waits for its commit: the job as a whole, and its part beside the queue.
OF_A_JOB = (
    *("{delayq}:queues", "{delayq}:runs", "{delayq}:job:nightly", "{delayq}:parts:nightly"),
    "delayq:{q}:nightly:job",
)


def wait_before_the_end(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """Each task waits after its last row."""
    yield from batches
    until(lambda: journal.lines("go on"), 2 * PATIENCE_S)


def fail_at_the_end(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """Each attempt of partition 0 fails after its last row, once all others are through."""
    context = TaskContext.get()
    assert context is not None
    yield from batches
    if context.partitionId() == 0:
        until(lambda: journal.lines("partition 1, attempt 0: written"), PATIENCE_S)
        raise RuntimeError("on purpose")


def test_nothing_is_visible_before_the_commit(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """Of a staged job nothing is in any queue until all its tasks are through; then every row is, once."""
    options = {"delivery": "staged", "job_id": "nightly", "id_columns": "id"}
    frame = spark.range(0, 40, 1, 2).selectExpr("id", "if(id % 2 = 0, 3600, NULL) AS countdown")
    journal = Journal(redis_server.port)
    with beside(spark, append_stepped, frame, redis_server, wait_before_the_end, **options) as written:
        try:
            until(lambda: journal.job("nightly").get("enqueued") == "40", PATIENCE_S)
            assert set(client.keys("*")) == {*OF_A_JOB, *("delayq:{q}:nightly:guard", "delayq:{q}:nightly:staged")}
        finally:
            journal.note("go on")
        written.result(PATIENCE_S)
    assert numbers(client) == list(range(1, 40, 2))
    due = delayed(client)
    assert len(due) == 20
    assert {round(due_ms - float(journal.job("nightly")["base"])) for due_ms in due.values()} == {3_600_000}
    assert not client.exists("delayq:{q}:nightly:guard", "delayq:{q}:nightly:staged")
    assert journal.job("nightly")["state"] == "committed"


def test_an_aborted_job_leaves_nothing(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog
) -> None:
    """A staged job that fails has sent nothing, and Redis keeps no more of it than its state; run again, it is whole.

    The state refuses its stragglers.
    """
    frame = spark.range(0, 40, 1, 2)
    with pytest.raises(Exception, match="on purpose"):
        append_stepped(frame, redis_server, fail_at_the_end, delivery="staged", job_id="nightly")
    assert set(client.keys("*")) == set(OF_A_JOB)
    assert client.hget("{delayq}:job:nightly", "state") == "aborted"
    assert {name: client.hget("delayq:{q}:nightly:job", name) for name in ("state", "enqueued")} == {
        "state": "aborted",
        "enqueued": "0",
    }
    append(frame, redis_server, delivery="staged", job_id="nightly")
    assert numbers(client) == list(range(40))
    until(lambda: "job nightly is committed: 40 rows, 40 messages in all\n" in spark_log())
