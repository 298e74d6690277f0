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
from tests.support.spark.jobs import append, delayed, kwargs, numbers, taken, tasks
from tests.support.spark.session import SparkLog
from tests.support.spark.stepped import Journal

HERE = "tests.spark.write.test_kill"
#: Rows of a table, which is promoted.
ROWS = 200
PROMOTED = "delayq:{q}:due"
#: Jobs of 40 rows: two that stop half way, and one that has staged all and sent 15, for which there was room.
JOBS = [
    {"step": f"{HERE}:stop_half_way", "options": {"queue": "direct", "job_id": "direct"}},
    {"step": f"{HERE}:stop_half_way", "options": {"queue": "staged", "job_id": "staged", "delivery": "staged"}},
    {
        "step": f"{HERE}:go_on",
        "options": {"queue": "published", "job_id": "published", "delivery": "staged", "max_queue_depth": 15},
    },
]


def stop_half_way(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """After 20 rows the task notes that, with its process id, and does no more."""
    yield next(batches)
    for number, batch in enumerate(batches, 2):
        yield batch
        if number == 4:
            journal.note(f"half way {os.getpid()}")
            until(lambda: journal.lines("never"), 600)


def go_on(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """All rows pass."""
    return batches


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture
def killed(java: None, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """Jobs of a Spark whose driver and JVM were ended by ``kill -9`` while they wrote, and while it promoted."""
    journal = Journal(redis_server.port)
    jobs = [{"rows": 40, "partitions": 1, **job} for job in JOBS]
    # It takes 400 s: on a busy machine the others have been half way before it is done.
    slowly = {"table": str(tmp_path / "table"), "rows": ROWS, "max_rate": 0.5, "task": "t", "queue": "q"}
    # A core for each: with fewer the last to begin would wait for the promotion to end.
    driver = child.start(
        tmp_path / "child", port=redis_server.port, jobs=jobs, promotions=[slowly], master="local[5,4]"
    )
    try:
        until(lambda: len(journal.lines("half way")) == 2 or driver.poll() is not None, 150)
        until(lambda: client.zcard(PROMOTED) > 0 or driver.poll() is not None, 60)
        until(lambda: client.llen("published") == 15 or driver.poll() is not None, 30)
        assert driver.poll() is None, (tmp_path / "child" / "log").read_text()
        assert journal.job("published")["state"] == "publishing"
    finally:
        driver.kill()
        driver.wait(20)
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
    """Jobs that were killed half way, and while they published, send each row once when they are run again."""
    frame = spark.range(0, 40, 1, 2)
    assert len(numbers(client, "direct")) == 20
    append(frame, redis_server, queue="direct", job_id="direct")
    assert numbers(client, "direct") == list(range(40))
    until(lambda: "job direct is committed: 40 rows, 40 messages in all, 20 sent before\n" in spark_log())
    found = job(redis_server.url, "direct")
    assert found is not None
    assert (found.rows, found.sent, found.sent_before) == (40, 40, 20)

    assert tasks(client, "staged") == []
    assert client.llen("delayq:{staged}:staged:staged") > 0
    append(frame, redis_server, queue="staged", job_id="staged", delivery="staged")
    assert numbers(client, "staged") == list(range(40))
    assert not client.exists("delayq:{staged}:staged:staged")

    consumed = [kwargs(taken(text))["id"] for text in client.rpop("published", 15)]
    append(frame, redis_server, queue="published", job_id="published", delivery="staged")
    assert len(numbers(client, "published")) == 25
    assert sorted([*consumed, *numbers(client, "published")]) == list(range(40))
    assert client.hget("{delayq}:job:published", "state") == "committed"
    assert not client.exists("delayq:{published}:published:staged")

    assert 0 < client.zcard(PROMOTED) < ROWS
    [head] = client.zpopmin(PROMOTED)  # it was delivered meanwhile
    client.hdel("delayq:{q}:backup", head[0])
    last = datetime.max.replace(tzinfo=UTC)
    done = promote(spark, str(tmp_path / "table"), until=last, broker_url=redis_server.url, task="t", queue="q")
    assert done.rows == ROWS
    assert delayed(client).keys() | {head[0]} == {str(n) for n in range(ROWS)}
    assert client.zcard(PROMOTED) == ROWS - 1
    assert not list((tmp_path / "table").glob("hour=*/*.parquet"))
