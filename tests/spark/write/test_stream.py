from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from tests.support.conditions import until
from tests.support.spark.jobs import numbers
from tests.support.spark.session import SparkLog
from tests.support.spark.streams import run_stream, write_rows


def rows(*ids: int) -> list[dict[str, int]]:
    return [{"id": n} for n in ids]


def jobs(client: redis.Redis) -> dict[str, str]:
    """Returns the state of each job, by the number of its batch."""
    return {key.rpartition("/")[2]: client.hget(key, "state") or "" for key in client.keys("{delayq}:job:*")}


def forget_commit(directory: Path, batch: int) -> None:
    """Makes a checkpoint what a crash between the commit of the batch and that of Spark leaves."""
    commits = directory / "checkpoint" / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)


def test_each_micro_batch_is_a_job(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog, tmp_path: Path
) -> None:
    """Each row of each micro-batch becomes one task, and Redis keeps the job, which a progress of the query names."""
    for n in range(3):
        write_rows(tmp_path / "in", rows(*range(10 * n, 10 * n + 10)))
    query = run_stream(spark, redis_server, tmp_path)
    for of, number in ((query, 2), (query.recentProgress[1], 1)):
        found = job(redis_server.url, of)
        assert found is not None
        assert (found.name, found.rows, found.sent, found.twice) == (f"{query.id}/{number}", 10, 10, 0)
    assert numbers(client) == list(range(30))
    assert jobs(client) == {"0": "committed", "1": "committed", "2": "committed"}
    assert not client.keys("*:guard")
    for n in range(3):
        until(lambda n=n: f"/{n} is committed: 10 rows, 10 messages in all\n" in spark_log())  # type: ignore[misc]


def test_replay(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A micro-batch that Spark runs again, because it had not noted its commit, sends nothing twice."""
    write_rows(tmp_path / "in", rows(*range(10)))
    write_rows(tmp_path / "in", rows(*range(10, 20)))
    run_stream(spark, redis_server, tmp_path)
    forget_commit(tmp_path, 1)
    write_rows(tmp_path / "in", rows(*range(20, 30)))
    run_stream(spark, redis_server, tmp_path)
    assert (tmp_path / "checkpoint" / "commits" / "2").exists()
    assert numbers(client) == list(range(30))


def test_a_batch_that_failed(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """A micro-batch that failed half way is aborted, and sends what is missing when the stream is started again."""
    options = {"chunk_size": 5, "id_columns": "id"}
    schema = "id long, priority long"
    write_rows(tmp_path / "in", [{"id": n, "priority": 0} for n in range(10)])
    # The second chunk of this one is refused, because its row 17 is bad.
    write_rows(tmp_path / "in", [{"id": n, "priority": 10 * (n == 17)} for n in range(10, 20)])
    with pytest.raises(Exception, match=r"column priority, value 10: .* on_bad_row=drop or dead_letter"):
        run_stream(spark, redis_server, tmp_path, schema, **options)
    assert numbers(client) == list(range(15))
    assert jobs(client) == {"0": "committed", "1": "aborted"}
    run_stream(spark, redis_server, tmp_path, schema, **options, on_bad_row="drop")
    assert numbers(client) == sorted({*range(20)} - {17})
    assert jobs(client) == {"0": "committed", "1": "committed"}
