"""Python processes of Spark tasks that are killed while they write to the far tier, and while they promote."""

import os
import signal
from pathlib import Path

import psutil
import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import promote, task_id
from celery_ext.spark.far.tier import FarTier
from tests.spark.far.test_promote import LATE
from tests.spark.write.test_task_retry import fail_half_way_three_times
from tests.support.conditions import until
from tests.support.spark.far import commit, files_of, waiting_ids
from tests.support.spark.jobs import append_stepped, beside, delayed

IDS = [f"id {n}" for n in range(60)]


@pytest.mark.nightly
def test_writing(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A Spark task that fails half way three times, once by a kill of its process, has each row in one tier once."""
    options = {"job_id": "nightly", "countdown": "1h", "spread": "2d", "far": tmp_path}
    append_stepped(spark.range(0, 80, 1, 2), redis_server, fail_half_way_three_times, **options)
    far, near = waiting_ids(tmp_path), delayed(client)
    assert far.keys() | near.keys() == {task_id("t", n) for n in range(80)}
    assert (far.total() + len(near), bool(far), bool(near)) == (80, True, True)
    assert set(files_of(tmp_path, "data")) >= {file.path for file in FarTier.of(str(tmp_path)).manifests()[0].files}


def test_promoting(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """The Spark task runs again, and sends each row once, among them none that was delivered before."""
    commit(tmp_path, IDS)
    slowly = {"broker_url": redis_server.url, "max_rate": 20}
    with beside(spark, promote, spark, str(tmp_path), LATE, **slowly) as promoted:
        until(lambda: client.zcard("delayq:{q}:due") >= 10)
        before = client.zcard("delayq:{q}:due")
        [head] = client.zpopmin("delayq:{q}:due")
        client.hdel("delayq:{q}:bodies", head[0])
        _kill_python_workers(spark)
        done = promoted.result(60)
    assert before < len(IDS)
    assert done.rows == len(IDS)
    assert delayed(client).keys() | {head[0]} == set(IDS)
    assert client.zcard("delayq:{q}:due") == len(IDS) - 1
    assert waiting_ids(tmp_path) == {}


def _kill_python_workers(spark: SparkSession) -> None:
    """Kills the Python workers of the session, which are the children of its daemons."""
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]
    living = [child for child in jvm.children() if child.status() != psutil.STATUS_ZOMBIE]
    daemons = [child for child in living if "pyspark.daemon" in child.cmdline()]
    workers = [worker for daemon in daemons for worker in daemon.children()]
    assert workers
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
