import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.spark.jobs import append, numbers
from tests.support.spark.streams import run_stream, write_rows


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A file that there is as soon as a Spark task has begun to read the rows of ``frame``."""
    return tmp_path / "started"


@pytest.fixture
def frame(spark: SparkSession, started: Path) -> DataFrame:
    """10 rows, which tell that they are read."""

    def touch(rows: Iterator[Any]) -> Iterator[Any]:
        started.touch()
        return rows

    plain = spark.range(10)
    return spark.createDataFrame(plain.rdd.mapPartitions(touch), plain.schema)


def test_rows_tell_that_they_are_read(
    frame: DataFrame, started: Path, redis_server: PrivateRedis, client: redis.Redis
) -> None:
    """The file of these tests is there after a job without errors."""
    append(frame, redis_server)
    assert numbers(client) == list(range(10))
    assert started.exists()


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id"], {"task": None}, "InvalidColumns: which task? Give option task, or a column task. The columns are: id"),
        (["id"], {"qeue": "x"}, "qeue is not an option (did you mean queue?)"),
        (["id", "array(TIME '12:00:00') AS times"], {}, "column times[] is of type time(6), which JSON cannot have"),
        (["id"], {"broker_url": "redis://127.0.0.1:1/0"}, "the broker redis://127.0.0.1:1/0 cannot be used"),
        (["id"], {"celery_app": "no.such.app"}, "celery_app='no.such.app' cannot be loaded"),
    ],
)
def test_errors_come_before_any_task(
    frame: DataFrame,
    started: Path,
    redis_server: PrivateRedis,
    client: redis.Redis,
    columns: list[str],
    options: dict[str, Any],
    message: str,
) -> None:
    """What is wrong with a job is told in words before any Spark task starts, and nothing is written."""
    with pytest.raises(Exception, match=re.escape(message)) as told:
        append(frame.selectExpr(*columns), redis_server, **options)
    *_, line, last = str(told.value).rstrip().splitlines()
    assert message in line  # as the page says
    assert line.startswith("celery_ext.spark.errors.")
    assert last.strip() == "SQLSTATE: 38000"
    assert not started.exists()
    assert client.keys("*") == []


def test_case_where_spark_tells_it_apart(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """With ``spark.sql.caseSensitive`` a column in another case is refused: it is neither ``eta`` nor an argument."""
    # Tasks refuse it, and each attempt starts a Python worker anew. With one partition there are four attempts at most.
    frame = spark.range(0, 10, 1, 1)
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(Exception, match="caseSensitive is true, and names are in another case: ETA instead of eta"):
            append(frame.selectExpr("id", "now() AS ETA"), redis_server)
        assert client.llen("q") == 0
        append(frame.selectExpr("id AS Id"), redis_server, id_columns="Id")
        assert client.llen("q") == 10
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_tables(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A table of Spark's catalog is refused in words, when it is made or when it is used, and nothing is written."""
    options = f"OPTIONS (broker_url '{redis_server.url}', task 't', queue 'q')"
    with pytest.raises(Exception, match=r"has no tables .* CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE orders USING celery {options}")
    with pytest.raises(Exception, match="For a table of its catalog Spark passes no options on"):
        spark.sql(f"CREATE TABLE orders USING celery {options} AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE orders (id bigint) USING celery {options}")  # Spark does not ask the data source
    try:
        for statement in ("INSERT INTO orders VALUES (1)", "SELECT * FROM orders"):
            with pytest.raises(Exception, match="For a table of its catalog Spark passes no options on"):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE orders")
    assert client.keys("*") == []


def test_paths(frame: DataFrame, started: Path, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A path, by which Spark's own formats are told where to write and read, is refused instead of passed over."""
    told = "path is not an option: tasks are in queues, not in files"
    writer = frame.write.format("celery").options(broker_url=redis_server.url, task="t", queue="q").mode("append")
    with pytest.raises(Exception, match=told):
        writer.save("/orders")
    reader = frame.sparkSession.read.format("celery").option("broker_url", redis_server.url)
    for paths in ("/orders", ["/orders", "/customers"]):
        with pytest.raises(Exception, match=told.replace("path", "paths?")):
            reader.load(paths)
    assert not started.exists()
    assert client.keys("*") == []


def test_an_evicting_redis(frame: DataFrame, started: Path, own_server: PrivateRedis) -> None:
    """A Redis that would drop messages when it is full is refused."""
    client = own_server.client()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(Exception, match="maxmemory-policy"):
        append(frame, own_server)
    assert not started.exists()
    assert client.keys("*") == []


def test_modes(frame: DataFrame, started: Path, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Only the mode ``append`` works; Spark refuses others itself, also when no mode is named."""
    writer = frame.write.format("celery").options(broker_url=redis_server.url, task="t", queue="q")
    with pytest.raises(Exception, match=r'never overwritten: write \.mode\("append"\)'):
        writer.mode("overwrite").save()
    for mode in ("ignore", "error"):
        with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            writer.mode(mode).save()
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        frame.write.format("celery").options(broker_url=redis_server.url, task="t", queue="q").save()
    assert not started.exists()
    assert client.keys("*") == []


def test_a_stream(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """What is wrong with a stream ends it in words, before its first batch is written."""
    write_rows(tmp_path / "in", [{"id": 1}])
    with pytest.raises(Exception, match="did you mean queue"):
        run_stream(spark, redis_server, tmp_path, qeue="q")
    assert client.keys("*") == []
