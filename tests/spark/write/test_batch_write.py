"""Jobs that write a batch: each row is one task, a cancel, or a bad row."""

import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import send, task_id
from tests.support.commands import shell
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


def test_send_says_what_it_did(frame: DataFrame, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """``send`` writes as ``save`` does, and returns the counts of its job."""
    found = send(frame, broker_url=redis_server.url, task="t", queue="q", id_columns="id", on_bad_row="drop")
    assert (found.state, found.rows, found.sent, found.bad) == ("committed", 40, 37, 3)
    assert len(numbers(client)) == 37


def test_no_rows(spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A frame without rows, and one without partitions, send nothing and are committed."""
    append(spark.range(0), redis_server, job_id="none")
    append(spark.createDataFrame([], "id long"), redis_server, job_id="no partition")
    assert not client.exists("q")
    assert [client.hget(f"{{delayq}}:job:{name}", "state") for name in ("none", "no partition")] == ["committed"] * 2


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """40 rows in 2 partitions; 17, 27 and 37 have a priority that there is not."""
    return spark.range(0, 40, 1, 2).select("id", expr("if(id IN (17, 27, 37), id, 0) AS priority"))


def test_dead_letter(frame: DataFrame, redis_server: PrivateRedis, client: redis.Redis, spark_log: SparkLog) -> None:
    """Bad rows become dead letters, which the command lists with the reason and what the row said."""
    append(frame, redis_server, on_bad_row="dead_letter", dead_letter_queue="dead", id_columns="id", job_id="nightly")
    assert numbers(client) == sorted({*range(40)} - {17, 27, 37})
    assert numbers(client, "dead") == [17, 27, 37]
    assert client.smembers("{delayq}:dead_letters") == {"dead"}
    assert all(kwargs(message)["priority"] == kwargs(message)["id"] for message in tasks(client, "dead"))
    until(lambda: "job nightly is committed: 40 rows, 40 messages in all, 3 bad, 3 dead letters\n" in spark_log())
    listed = shell.lines(redis_server, "dead-letters", "list", "dead")
    assert sorted(line["error"] for line in listed) == sorted(
        f"column priority, value {n}: is not a priority from 0 to 9 (row {task_id('t', n)})" for n in (17, 27, 37)
    )
    assert {line["reason"] for line in listed} == {"bad row"}
    printed = shell.run(redis_server, "dead-letters", "list", "dead").stdout
    assert printed.count("column priority, value ") == 3
