import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import task_id
from tests.support.conditions import until
from tests.support.spark.jobs import append, delayed
from tests.support.spark.session import SparkLog


@pytest.fixture
def earlier(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """An earlier job has sent the tasks of 0 to 39, which wait."""
    append(spark.range(40), redis_server, countdown="1h", id_columns="id")


@pytest.mark.usefixtures("earlier")
def test_cancel(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog) -> None:
    """Rows that say ``cancel`` take back waiting tasks of an earlier job that have their ids, others are sent."""
    frame = spark.range(30, 50, 1, 2).select(
        "id", expr("CASE WHEN id < 35 OR id >= 45 THEN 'cancel' WHEN id < 43 THEN 'enqueue' END AS op")
    )
    append(frame, redis_server, countdown="2h", id_columns="id", job_id="nightly")
    # 35 to 39 wait twice now, sent by two jobs: under their ids, and beside these.
    assert {identity[:36] for identity in delayed(client)} == {task_id("t", n) for n in (*range(30), *range(35, 45))}
    assert len(delayed(client)) == 45
    until(lambda: "job nightly is committed: 20 rows, 10 messages in all, 5 cancelled\n" in spark_log())
