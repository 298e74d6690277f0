from collections.abc import Callable, Iterator

import pytest
from pyarrow import RecordBatch
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.servers.redis_version import major_version
from tests.support.spark.jobs import append_stepped, beside, numbers
from tests.support.spark.stepped import Journal


@pytest.fixture
def frail_server() -> Iterator[PrivateRedis]:
    """A server that takes 10 ms to load each key when it starts, and answers meanwhile."""
    if major_version() < 7:
        pytest.skip("Redis can be told to answer after every few keys from 7.0 on")
    with PrivateRedis("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024") as server:
        yield server


def ask_before_each_batch(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """Each batch waits for the test to say that it may be written."""
    for number, batch in enumerate(batches):
        journal.note(f"ready {number}")
        until(lambda: journal.lines(f"go {number}"), 60)  # noqa: B023 called at once
        yield batch


def _full(server: PrivateRedis, go_on: Callable[[], None]) -> None:
    client = server.client()
    client.config_set("maxmemory", 1)
    go_on()
    until(lambda: "errorstat_OOM" in client.info("errorstats"))
    client.config_set("maxmemory", 0)


def _read_only(server: PrivateRedis, go_on: Callable[[], None]) -> None:
    client = server.client()
    client.replicaof("127.0.0.1", 1)
    go_on()
    until(lambda: "errorstat_READONLY" in client.info("errorstats"))
    client.replicaof("NO", "ONE")


def _restarted(server: PrivateRedis, go_on: Callable[[], None]) -> None:
    client = server.client()
    client.mset({f"filler {n}": "x" * 100 for n in range(250)})
    client.save()
    server.stop()
    go_on()
    server.start()  # loads for 2.5 s, while a writer tries at least every 2 s
    assert "errorstat_LOADING" in server.client().info("errorstats")


def test_a_redis_in_trouble(spark: SparkSession, redis_server: PrivateRedis, frail_server: PrivateRedis) -> None:
    """A job waits while its Redis is full, then a replica, then away, then loading, and sends each row once."""
    client, journal = frail_server.client(), Journal(redis_server.port)
    redis_server.client().flushall()
    with beside(
        spark, append_stepped, spark.range(0, 20, 1, 1), frail_server, ask_before_each_batch, port=redis_server.port
    ) as written:
        for number, trouble in enumerate((_full, _read_only, _restarted)):
            until(lambda: journal.lines(f"ready {number}"), 60)  # noqa: B023 called at once
            trouble(frail_server, lambda: journal.note(f"go {number}"))  # noqa: B023 called at once
        journal.note("go 3")
        written.result(60)
    assert numbers(client) == list(range(20))
    assert journal.lines("partition 0") == ["partition 0, attempt 0: written"]  # Spark has not retried it
