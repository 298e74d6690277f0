import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from pyarrow import RecordBatch
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job, promote
from tests.support.conditions import until
from tests.support.spark import child
from tests.support.spark.jobs import append, delayed, numbers
from tests.support.spark.session import SparkLog
from tests.support.spark.stepped import Journal

HERE = "tests.spark.write.test_kill"
#: Rows of a table, which is promoted.
ROWS = 200
PROMOTED = "delayq:{q}:due"
#: A job of 40 rows that stops half way.
JOB = {"rows": 40, "partitions": 1, "step": f"{HERE}:stop_half_way", "options": {"queue": "direct", "job_id": "direct"}}


def stop_half_way(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """After 20 rows the task notes that, with its process id, and does no more."""
    yield next(batches)
    for number, batch in enumerate(batches, 2):
        yield batch
        if number == 4:
            journal.note(f"half way {os.getpid()}")
            until(lambda: journal.lines("never"), 600)


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def killed(java: None, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A Spark whose driver and JVM were ended by ``kill -9`` while a job wrote, and while it promoted."""
    journal = Journal(redis_server.port)
    # It takes 400 s: on a busy machine the others have been half way before it is done.
    slowly = {"table": str(tmp_path / "table"), "rows": ROWS, "max_rate": 0.5, "task": "t", "queue": "q"}
    # A core for each: with fewer the last to begin would wait for the promotion to end.
    jobs = {"jobs": [JOB], "promotions": [slowly], "master": "local[3,4]"}
    try:
        with child.running(tmp_path / "child", port=redis_server.port, **jobs) as driver:
            until(lambda: journal.lines("half way") or driver.poll() is not None, 150)
            until(lambda: client.zcard(PROMOTED) > 0 or driver.poll() is not None, 60)
            assert driver.poll() is None, (tmp_path / "child" / "log").read_text()
    finally:
        for line in journal.lines("jvm"):
            os.kill(int(line.split()[-1]), signal.SIGKILL)
    # They end by themselves, when their JVM is gone.
    workers = [int(line.split()[-1]) for line in journal.lines("half way")]
    until(lambda: not any(map(_is_alive, workers)), 30)


@pytest.mark.nightly
@pytest.mark.timeout(600)  # two JVMs
@pytest.mark.usefixtures("killed")
def test_killed_jobs_run_again(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog, tmp_path: Path
) -> None:
    """Jobs that were killed half way send each row once when they are run again."""
    frame = spark.range(0, 40, 1, 2)
    assert len(numbers(client, "direct")) == 20
    append(frame, redis_server, queue="direct", job_id="direct")
    assert numbers(client, "direct") == list(range(40))
    until(lambda: "job direct is committed: 40 rows, 40 messages in all, 20 sent before\n" in spark_log())
    found = job(redis_server.url, "direct")
    assert found is not None
    assert (found.rows, found.sent, found.sent_before) == (40, 40, 20)

    assert 0 < client.zcard(PROMOTED) < ROWS
    [head] = client.zpopmin(PROMOTED)  # it was delivered meanwhile
    client.hdel("delayq:{q}:backup", head[0])
    last = datetime.max.replace(tzinfo=UTC)
    done = promote(spark, str(tmp_path / "table"), until=last, broker_url=redis_server.url, task="t", queue="q")
    assert done.rows == ROWS
    assert delayed(client).keys() | {head[0]} == {str(n) for n in range(ROWS)}
    assert client.zcard(PROMOTED) == ROWS - 1
    assert not list((tmp_path / "table").glob("hour=*/*.parquet"))
