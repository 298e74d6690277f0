"""What the data source for Spark writes and reads a second, beside Celery's own way to send tasks."""

import os
import sys
from collections.abc import Callable, Iterator
from statistics import median
from time import monotonic
from typing import Any

from celery import Celery

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.report import Figure

TASK, QUEUE = "orders.close", "orders"
#: Rows that are sent one by one; the rate does not depend on their number.
LOOP, ROUNDS = 3_000, 3


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Runs Spark as local[2], with Redis on the same machine; each way to send in turn with the others."""
    from pyspark.sql import SparkSession

    import celery_ext.spark

    rows, client = 100_000 if quick else 1_000_000, server.client()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "ui.enabled": "false",
        "driver.memory": "4g",
        "driver.host": "127.0.0.1",
        "ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    celery_ext.spark.register(spark)
    try:
        orders = spark.range(0, rows, 1, 2).selectExpr("id AS order_id", "concat('c', id % 100000) AS customer").cache()
        _write(orders.limit(1000), server)  # Python workers start
        client.flushall()
        took: dict[str, list[float]] = {"plain": [], "loop": [], "delayed": []}
        for _ in range(ROUNDS):
            client.flushall()
            took["plain"].append(rows / _timed(lambda: _write(orders, server)))
            client.flushall()
            took["loop"].append(LOOP / _timed(lambda: _send_each(server)))
            client.flushall()
            took["delayed"].append(rows / _timed(lambda: _write(orders, server, countdown="1h", spread="1h")))
        waiting = spark.read.format("celery").option("broker_url", server.url).option("queue", QUEUE)
        read = [
            rows / _timed(lambda: waiting.load().write.format("noop").mode("overwrite").save()) for _ in range(ROUNDS)
        ]
    finally:
        spark.stop()
    note = f"{rows:,} rows, median of {ROUNDS}"
    yield Figure("rows to a plain queue", median(took["plain"]), "/s", 100_000, True, note)
    yield Figure("rows into the delayed store", median(took["delayed"]), "/s", 60_000, True)
    yield Figure("app.send_task in a loop, stock", median(took["loop"]), "/s")
    yield Figure("waiting messages read, all columns", median(read), "/s", 120_000, True)


def _write(rows: Any, server: PrivateRedis, **options: Any) -> None:
    given = {"broker_url": server.url, "task": TASK, "queue": QUEUE, "id_columns": "order_id", **options}
    rows.write.format("celery").options(**given).mode("append").save()


def _timed(work: Callable[[], None]) -> float:
    began = monotonic()
    work()
    return monotonic() - began


def _send_each(server: PrivateRedis) -> None:
    app = Celery("bench", broker=server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    for order in range(LOOP):
        app.send_task(TASK, kwargs={"order_id": order, "customer": f"c{order}"}, queue=QUEUE)
    app.close()
