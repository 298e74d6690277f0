from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.spark.jobs import append, numbers
from tests.support.spark.session import BROKER_ENV, GONE_ENV, PASSWORD, WRONG_ENV, WRONG_PASSWORD


@pytest.fixture
def guarded(guarded_server: PrivateRedis) -> redis.Redis:
    """A client of the server with a password."""
    client = redis.Redis(port=guarded_server.port, password=PASSWORD, decode_responses=True)
    client.flushall()
    return client


@pytest.fixture
def talkative(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, which logs all that it can."""
    spark.sparkContext.setLogLevel("DEBUG")
    yield spark
    spark.sparkContext.setLogLevel("ERROR")


def test_a_password_stays_in_the_environment(
    talkative: SparkSession, guarded_server: PrivateRedis, guarded: redis.Redis, spark_files: list[Path]
) -> None:
    """With the URL in the environment, no log, event, plan or error has its password, whether jobs fail or not."""
    frame = talkative.range(0, 40, 1, 2)
    given = {"broker_url": None, "broker_url_env": BROKER_ENV}
    append(frame, guarded_server, **given)
    assert numbers(guarded) == list(range(40))
    told = []
    for options, expected in (
        ({"broker_url_env": WRONG_ENV}, "cannot be used"),
        ({"broker_url_env": GONE_ENV}, "cannot be used"),
        ({"write_timeout": "0.2", "max_queue_depth": 40}, "the option write_timeout"),
        ({"celery_app": "no.such.app"}, "cannot be loaded"),
    ):
        with pytest.raises(Exception, match=expected) as caught:
            append(frame, guarded_server, **{**given, **options})
        told.append(f"{caught.value!r} {caught.value}")
    waiting = talkative.read.format("celery").options(broker_url_env=BROKER_ENV, queue="q").load()
    with redirect_stdout(StringIO()) as explained:
        waiting.explain(True)
    waiting.collect()
    assert "celery" in explained.getvalue()
    texts = [path.read_text(errors="replace") for path in spark_files]
    assert "is committed: 40 rows, 40 messages in all" in texts[0]
    assert sum(len(text) for text in texts[1:]) > 10_000
    for text in (*texts, *told, explained.getvalue()):
        assert PASSWORD not in text
        assert WRONG_PASSWORD not in text
