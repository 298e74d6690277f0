import re

import pytest
import redis
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job, task_id
from tests.support.conditions import until
from tests.support.spark.jobs import append, kwargs, numbers, tasks
from tests.support.spark.session import SparkLog


def test_each_row_is_one_task(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog
) -> None:
    """Each row of each partition becomes one task, whose id is that of its values."""
    frame = spark.range(0, 40, 1, 4).select("id", expr("concat('customer ', id) AS customer"))
    append(frame, redis_server, task="orders.close", id_columns="id", job_id="nightly")
    assert numbers(client) == list(range(40))
    for message in tasks(client):
        given = kwargs(message)
        assert message["headers"]["task"] == "orders.close"
        assert given == {"id": given["id"], "customer": f"customer {given['id']}"}
        assert message["headers"]["id"] == task_id("orders.close", given["id"])
    until(lambda: "job nightly is committed: 40 rows, 40 messages in all\n" in spark_log())


def test_a_job_is_written_once(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog
) -> None:
    """A committed job that may run again sends nothing then, and says nothing that reads like success."""
    append(spark.range(40), redis_server, job_id="nightly")
    before = spark_log()
    append(spark.range(50), redis_server, job_id="nightly", on_committed="skip")
    assert numbers(client) == list(range(40))
    told = until(lambda: re.search("WARNING .* with 40 tasks; this run has sent nothing\n", spark_log()))
    assert "is committed" not in told.string[len(before) :]


def test_a_committed_job_is_refused(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A job that was committed fails when it is run again, with its name and the time, before any Spark task."""
    append(spark.range(40), redis_server, job_id="nightly")
    found = job(redis_server.url, "nightly")
    assert found is not None
    assert found.ended is not None
    assert (found.state, found.rows, found.sent, found.bad) == ("committed", 40, 40, 0)
    when = found.ended.isoformat(timespec="seconds")
    with pytest.raises(AnalysisException, match="JobCommittedBefore: job nightly was committed at") as error:
        append(spark.range(50), redis_server, job_id="nightly")
    assert f"{when}, with 40 tasks" in str(error.value)
    assert numbers(client) == list(range(40))
    assert job(redis_server.url, "nightly") == found


def test_no_rows(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A frame without rows, and one without partitions, send nothing and are committed."""
    append(spark.range(0), redis_server, job_id="none")
    append(spark.createDataFrame([], "id long"), redis_server, job_id="no partition")
    assert not client.exists("q")
    assert [client.hget(f"{{delayq}}:job:{name}", "state") for name in ("none", "no partition")] == ["committed"] * 2
