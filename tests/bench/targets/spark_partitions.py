"""Measures what the number of partitions does to a write: Spark runs a task for each, with a connection of its own."""

from collections.abc import Iterator
from statistics import median
from time import monotonic

from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.report import Figure

TASK, QUEUE = "orders.close", "orders"
#: Numbers of partitions that the same rows are written from, on the two cores of ``local[2]``.
PARTITIONS = (1, 2, 4, 8, 32, 128)
ROUNDS = 3


def measure(spark: SparkSession, server: PrivateRedis, rows: int) -> Iterator[Figure]:
    """Yields a figure for each number of partitions. They are measured in turn, several times.

    Args:
        spark: The session.
        server: Redis.
        rows: Rows of a write.
    """
    client = server.client()
    _write(spark, server, 1000, 2)  # Python workers start
    took: dict[int, list[float]] = {count: [] for count in PARTITIONS}
    for _ in range(ROUNDS):
        for count in PARTITIONS:
            client.flushall()
            took[count].append(_write(spark, server, rows, count))
    for count, found in took.items():
        middle = median(found)
        note = f"{rows:,} rows in {middle:.1f} s, {min(found):.1f} to {max(found):.1f} s in {ROUNDS} rounds"
        yield Figure(f"rows to a plain queue from {count} partitions", rows / middle, "/s", note=note)
    over = (median(took[PARTITIONS[-1]]) - median(took[2])) / (PARTITIONS[-1] - 2)
    yield Figure("what each further partition costs", over * 1000, "ms", note="of two cores together")


def _write(spark: SparkSession, server: PrivateRedis, rows: int, partitions: int) -> float:
    """Writes rows. Returns how long that took, in s."""
    orders = spark.range(0, rows, 1, partitions).selectExpr("id AS order_id", "concat('c', id % 100000) AS customer")
    given = {"broker_url": server.url, "task": TASK, "queue": QUEUE, "id_columns": "order_id"}
    begun = monotonic()
    orders.write.format("celery").options(**given).mode("append").save()
    return monotonic() - begun
