import pytest
import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import task_id
from tests.support.commands import shell
from tests.support.conditions import until
from tests.support.spark.jobs import append, kwargs, numbers, tasks
from tests.support.spark.session import SparkLog


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """40 rows in 2 partitions; 17, 27 and 37 have a priority that there is not."""
    return spark.range(0, 40, 1, 2).select("id", expr("if(id IN (17, 27, 37), id, 0) AS priority"))


def test_fail(frame: DataFrame, redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A bad row fails the job, with its column, the id of the row, and its value."""
    with pytest.raises(Exception, match="is not a priority from 0 to 9") as caught:
        append(frame.where("id < 20"), redis_server, id_columns="id", job_id="nightly")
    assert f"column priority, value 17: is not a priority from 0 to 9 (row {task_id('t', 17)})" in str(caught.value)
    assert "on_bad_row=drop or dead_letter" in str(caught.value)
    assert client.hget("{delayq}:job:nightly", "state") == "aborted"


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
