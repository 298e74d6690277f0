import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID

import pytest
import redis
from celery import Celery
from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.spark.jobs import append
from tests.support.spark.stepped import Journal

APP = "tests.support.spark.receiver"
UUIDS = "0f8fad5b-d9cb-469f-a165-70867728950e"
#: A column of each type, in the session's time zone, and what is in the task.
COLUMNS = {
    "true AS truth": True,
    "CAST(-7 AS BYTE) AS tiny": -7,
    "CAST(300 AS SHORT) AS small": 300,
    "CAST(70000 AS INT) AS whole": 70_000,
    "9007199254740993 AS long": 9_007_199_254_740_993,
    "CAST(0.5 AS FLOAT) AS float": 0.5,
    "CAST(0.1 AS DOUBLE) AS double": 0.1,
    "CAST(12.340 AS DECIMAL(10, 3)) AS price": Decimal("12.340"),
    "'Grüße, \"Spark ⏰\"' AS text": 'Grüße, "Spark ⏰"',
    "X'00FF' AS bytes": b"\x00\xff",
    "DATE '2030-07-31' AS day": datetime.date(2030, 7, 31),
    "TIMESTAMP '2030-07-31 12:00:00.25' AS moment": datetime.datetime(2030, 7, 31, 10, 0, 0, 250_000, datetime.UTC),
    "TIMESTAMP_NTZ '2030-07-31 12:00:00' AS wall": datetime.datetime(2030, 7, 31, 12),
    f"'{UUIDS}' AS identity": UUID(UUIDS),
    "array(1, NULL, 3) AS list": [1, None, 3],
    "map('a', 1, 'b', 2) AS map": {"a": 1, "b": 2},
    "named_struct('day', DATE '2030-07-31', 'at', TIMESTAMP '2030-01-31 12:00:00') AS struct": {
        "day": datetime.date(2030, 7, 31),
        "at": datetime.datetime(2030, 1, 31, 11, tzinfo=datetime.UTC),
    },
    "array(named_struct('price', 1.50)) AS nested": [{"price": Decimal("1.50")}],
    "CAST(NULL AS STRING) AS nothing": None,
}


@pytest.fixture
def journal(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[Journal]:
    """What the tasks of a worker write down, which runs with Celery's own transport."""
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "celery", "-A", APP, "-b", redis_server.url, "worker", "-P", "solo", "-Q"),
            *("plain", "-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"),
        ],
        cwd=ROOT,
        env={**os.environ, "RECEIVER_PORT": str(redis_server.port)},
        stdin=subprocess.DEVNULL,
    )
    yield Journal(redis_server.port)
    worker.terminate()
    worker.wait(60)


def test_values(spark: SparkSession, redis_server: PrivateRedis, journal: Journal) -> None:
    """A task gets a column of each type as the Python value that a caller of ``apply_async`` would have given."""
    kwargs = {column.rpartition(" ")[2]: value for column, value in COLUMNS.items()}
    options = {"celery_app": APP, "task": "receive", "queue": None, "uuid_columns": "identity"}
    append(spark.range(1).selectExpr(*COLUMNS), redis_server, **options)
    with Celery("caller", broker=redis_server.url, set_as_current=False) as app:
        app.send_task("receive", kwargs=kwargs, queue="plain")
    lines = until(lambda: found if len(found := journal.lines()) >= 2 else None, 120) or []
    assert lines == [f"receive plain 0 () {kwargs!r}"] * 2
