"""Spark tasks that fail and come again, and those that go on when nobody waits for them any more."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from tests.support.conditions import until
from tests.support.spark.jobs import append, append_stepped, delayed, numbers
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


def fail_half_way(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """Every attempt of partition 1 fails after 20 rows, once partition 0 is through."""
    context = TaskContext.get()
    assert context is not None
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if context.partitionId() == 1 and rows == 20:
            until(lambda: journal.lines("partition 0, attempt 0: written"))
            raise RuntimeError("on purpose")


@pytest.mark.nightly
def test_a_task_that_fails_half_way_three_times(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog
) -> None:
    """A Spark task that fails half way three times, once by a kill of its process, sends each row once."""
    append_stepped(spark.range(0, 80, 1, 2), redis_server, fail_half_way_three_times, job_id="nightly")
    assert numbers(client) == list(range(80))
    journal = Journal(redis_server.port)
    assert [line.partition(":")[0] for line in journal.lines("partition 0, ") if "after" in line] == [
        f"partition 0, attempt {n}" for n in range(3)
    ]
    assert journal.lines("partition 0, attempt 3") == ["partition 0, attempt 3: written"]
    assert journal.job("nightly")["enqueued"] == "80"
    until(lambda: "job nightly is committed: 80 rows, 80 messages in all, 30 sent before\n" in spark_log())
    found = job(redis_server.url, "nightly")
    assert found is not None
    assert (found.rows, found.sent, found.state) == (80, 80, "committed")


def test_tasks_that_failed_half_way_are_due_at_the_same_time(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """A later attempt counts a countdown from the begin of the job, as the first did."""
    options = {"job_id": "nightly", "countdown": "1h"}
    append_stepped(spark.range(0, 80, 1, 2), redis_server, fail_half_way_three_times, **options)
    due = delayed(client)
    assert len(due) == 80
    assert len(set(due.values())) == 1


@pytest.mark.parametrize(("mode", "sent"), [("keep", 70), ("replace", 80)])
def test_a_task_that_failed_half_way_has_decided_already(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, mode: str, sent: int
) -> None:
    """With ``if_waiting``, later attempts change nothing of what a killed attempt has kept, sent, replaced."""
    append(spark.range(0, 80, 8), redis_server, countdown="1h", id_columns="id")
    before = delayed(client)
    options = {"job_id": "nightly", "countdown": "2h", "id_columns": "id", "if_waiting": mode}
    append_stepped(spark.range(0, 80, 1, 2), redis_server, fail_half_way_three_times, **options)
    found = job(redis_server.url, "nightly")
    assert found is not None
    assert (found.rows, found.sent, found.kept, found.replaced) == (80, sent, 80 - sent, sent - 70)
    due = delayed(client)
    assert len(due) == 80
    assert {one for one in before if due[one] == before[one]} == ({*before} if mode == "keep" else set())


@pytest.mark.nightly
def test_a_failed_job_run_again(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog
) -> None:
    """A job that has failed half way sends what is missing when it is run again under its name."""
    frame = spark.range(0, 80, 1, 2)
    with pytest.raises(Exception, match="on purpose"):
        append_stepped(frame, redis_server, fail_half_way, job_id="nightly")
    assert numbers(client) == list(range(60))
    until(lambda: "job nightly is aborted; a run with the same name sends what is missing" in spark_log())
    append(frame, redis_server, job_id="nightly")
    assert numbers(client) == list(range(80))
    until(lambda: "job nightly is committed: 80 rows, 80 messages in all, 60 sent before\n" in spark_log())


def _first_ten_then(batches: list[RecordBatch], journal: Journal, word: str, happened: str) -> Iterator[RecordBatch]:
    """Yields 10 rows, notes that it waits, and yields the others when the job is in a state."""
    yield from batches[:2]
    journal.note(f"held: {attempt()}")
    until(lambda: journal.job("nightly").get(word) == happened, 60)
    yield from batches[2:]


def fail_while_another_is_held(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """Partition 1 is held half way until the job is aborted, because partition 0 fails meanwhile."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1:
        yield from _first_ten_then(list(batches), journal, "state", "aborted")
    else:
        yield next(batches)
        until(lambda: journal.lines("held"))
        raise RuntimeError("on purpose")


def fail_while_another_is_held_for_a_later_run(
    batches: Iterator[RecordBatch], journal: Journal
) -> Iterator[RecordBatch]:
    """As before, but partition 1 is held until another run has begun, which is held until partition 1 has ended."""
    context = TaskContext.get()
    assert context is not None
    first = journal.job("nightly")["run"] == "1"
    if first and context.partitionId() == 1:
        yield from _first_ten_then(list(batches), journal, "run", "2")
    elif first:
        yield next(batches)
        until(lambda: journal.lines("held"))
        raise RuntimeError("on purpose")
    else:
        yield next(batches)
        until(lambda: journal.lines("partition 1, attempt 0: "), 60)
        yield from batches


def lose_a_task_that_goes_on(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """The first attempt of partition 0 reads 20 rows; it is held half way until the job is committed."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0 and context.attemptNumber() == 0:
        yield from _first_ten_then([next(batches) for _ in range(4)], journal, "state", "committed")
    else:
        yield from batches


@pytest.mark.nightly
def test_after_abort(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A Spark task that goes on after its job was aborted writes nothing more."""
    with pytest.raises(Exception, match="on purpose"):
        append_stepped(spark.range(0, 80, 1, 2), redis_server, fail_while_another_is_held, job_id="nightly")
    journal = Journal(redis_server.port)
    [end] = until(lambda: journal.lines("partition 1, "))
    assert end == "partition 1, attempt 0: StragglerRefused: job nightly has been aborted; this task writes no more"
    assert numbers(client) == [*range(5), *range(40, 50)]


@pytest.mark.nightly
def test_after_a_later_run_has_begun(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A Spark task that goes on while its job is run again writes nothing more, and the job sends each row once."""
    frame, step = spark.range(0, 80, 1, 2), fail_while_another_is_held_for_a_later_run
    with pytest.raises(Exception, match="on purpose"):
        append_stepped(frame, redis_server, step, job_id="nightly")
    assert numbers(client) == [*range(5), *range(40, 50)]
    append_stepped(frame, redis_server, step, job_id="nightly")
    ends = Journal(redis_server.port).lines("partition 1, attempt 0: StragglerRefused")
    assert ends == [
        "partition 1, attempt 0: StragglerRefused: job nightly goes on in a later run; this task writes no more"
    ]
    assert numbers(client) == list(range(80))


@pytest.mark.nightly
def test_after_commit(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A lost attempt of a task that goes on after its job was committed writes nothing more."""
    journal = Journal(redis_server.port)
    port = redis_server.port

    def fail_once(rows: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        lost = context.partitionId() == 0 and context.attemptNumber() == 0
        for n, row in enumerate(rows):
            if lost and n == 30:
                until(lambda: Journal(port).lines("held"))
                raise RuntimeError("on purpose")
            yield row

    # Rows of 100 kB are handed on at once, while Spark would gather smaller ones.
    frame = spark.range(0, 80, 1, 2).selectExpr("id", "repeat('x', 100000) AS filling")
    failing = spark.createDataFrame(frame.rdd.mapPartitions(fail_once), frame.schema)
    append_stepped(failing, redis_server, lose_a_task_that_goes_on, job_id="nightly")
    assert numbers(client) == list(range(80))
    [end] = until(lambda: journal.lines("partition 0, attempt 0: "))
    assert end == "partition 0, attempt 0: written"
    assert numbers(client) == list(range(80))
    assert journal.job("nightly")["enqueued"] == "80"
