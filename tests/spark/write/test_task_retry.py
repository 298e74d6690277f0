"""Spark tasks that fail and come again, and those that go on when nobody waits for them any more."""

import os
import signal
from collections.abc import Iterator

import redis
from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from tests.support.conditions import until
from tests.support.spark.jobs import append_stepped, delayed
from tests.support.spark.session import SparkLog
from tests.support.spark.stepped import Journal, attempt


def fail_half_way_three_times(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """The task of partition 0 fails after 10 rows, then after 20, when its process is killed, and after 30."""
    context = TaskContext.get()
    assert context is not None
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if context.partitionId() == 0 and rows == 10 * (context.attemptNumber() + 1) < 40:
            journal.note(f"{attempt()}: after {rows} rows {journal.broker.hget('delayq:{q}:nightly:job', 'enqueued')}")
            if context.attemptNumber() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("on purpose")


def test_a_task_that_fails_half_way_three_times(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog
) -> None:
    """A Spark task that fails half way three times, once by a kill of its process, sends each row once.

    A later attempt counts a countdown from the begin of the job, as the first did.
    """
    options = {"job_id": "nightly", "countdown": "1h"}
    append_stepped(spark.range(0, 80, 1, 2), redis_server, fail_half_way_three_times, **options)
    due = delayed(client)
    assert (len(due), len(set(due.values()))) == (80, 1)
    journal = Journal(redis_server.port)
    assert [line.partition(":")[0] for line in journal.lines("partition 0, ") if "after" in line] == [
        f"partition 0, attempt {n}" for n in range(3)
    ]
    assert journal.lines("partition 0, attempt 3") == ["partition 0, attempt 3: written"]
    until(lambda: "job nightly is committed: 80 rows, 80 messages in all, 30 sent before\n" in spark_log())
    found = job(redis_server.url, "nightly")
    assert found is not None
    assert (found.rows, found.sent, found.state) == (80, 80, "committed")
