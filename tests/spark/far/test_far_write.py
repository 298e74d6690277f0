"""Jobs with the option ``far``: rows that are due late go to files, the others to Redis, each once over both."""

from pathlib import Path

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import task_id
from celery_ext.spark.far.tier import FarTier
from tests.support.conditions import until
from tests.support.spark.far import offers, waiting_ids
from tests.support.spark.jobs import append, delayed, numbers
from tests.support.spark.session import SparkLog
from tests.support.spark.streams import run_stream, write_rows


def rows(spark: SparkSession, count: int = 40, partitions: int = 4) -> DataFrame:
    """Rows of which each fourth is due now, each fourth soon, and the others in days."""
    days = "CASE id % 4 WHEN 0 THEN 0.0 WHEN 1 THEN 600.0 WHEN 2 THEN 3e6 ELSE 6e6 END"
    return spark.range(0, count, 1, partitions).select("id", expr(f"CAST({days} AS DOUBLE) AS countdown"))


def everywhere(client: redis.Redis, path: Path) -> dict[str, int]:
    """Returns how often each task is in Redis and in the far tier together."""
    found = waiting_ids(path)
    found.update(delayed(client).keys())
    found.update(task_id("t", n) for n in numbers(client))
    return dict(found)


def all_of(count: int) -> dict[str, int]:
    """Returns each task once."""
    return {task_id("t", n): 1 for n in range(count)}


def test_each_row_is_in_one_tier(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path, spark_log: SparkLog
) -> None:
    """Rows beyond the horizon are in files of their hours, which only the manifest makes count, and Redis the rest."""
    append(rows(spark), redis_server, far=tmp_path, id_columns="id", job_id="nightly")
    assert everywhere(client, tmp_path) == all_of(40)
    assert set(waiting_ids(tmp_path)) == {task_id("t", n) for n in range(40) if n % 4 > 1}
    [manifest] = FarTier.of(str(tmp_path)).manifests()
    assert (manifest.job, manifest.rows, manifest.horizon_ms) == ("nightly", 20, 86_400_000)
    assert manifest.base_ms == float(client.hget("{delayq}:job:nightly", "base") or 0)
    due = {str(offer.id): float(offer.due) - manifest.base_ms for _, offer in offers(tmp_path)}
    assert due == {task_id("t", n): pytest.approx(3e9 if n % 4 == 2 else 6e9) for n in range(40) if n % 4 > 1}
    until(lambda: "job nightly is committed: 40 rows, 20 messages in all, 20 in the far tier\n" in spark_log())
    assert not list((tmp_path / "prepared").iterdir())


def test_stream(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """Each micro-batch of a stream is a job over both tiers; a replayed one adds nothing."""
    for start in (0, 8):
        write_rows(tmp_path / "in", [{"id": n, "countdown": (n % 2) * 1e6 + 5000} for n in range(start, start + 8)])
    far = {"far": tmp_path / "far", "id_columns": "id"}
    run_stream(spark, redis_server, tmp_path, "id long, countdown double", **far)
    assert everywhere(client, tmp_path / "far") == all_of(16)
    assert len(FarTier.of(str(tmp_path / "far")).manifests()) == 2
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
    run_stream(spark, redis_server, tmp_path, "id long, countdown double", **far)
    assert everywhere(client, tmp_path / "far") == all_of(16)
