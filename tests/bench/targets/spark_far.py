"""Measures the far tier: how small rows are, how fast they are written, promoted and cancelled."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import monotonic, time

from pyspark.sql import SparkSession

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import cancel, promote, task_id
from celery_ext.spark.far.manifest import hour_us
from celery_ext.spark.far.tier import FarTier
from tests.bench.targets.report import Figure

TASK, QUEUE = "orders.close", "orders"
#: Rows that are due in one hour.
HOUR_ROWS = 1_000_000
ROUNDS = 3


def measure(spark: SparkSession, server: PrivateRedis, rows: int, directory: Path) -> Iterator[Figure]:
    """Yields the figures.

    Args:
        spark: The session.
        server: Redis.
        rows: Rows in the tier. They are due in as many hours as they have ``HOUR_ROWS``, or in three.
        directory: For the files.
    """
    path = directory / "far"
    hours = max(ROUNDS, rows // HOUR_ROWS)
    took = _timed(lambda: _write(spark, server, rows, hours, path))
    tier = FarTier.of(str(path))
    [manifest] = tier.manifests()
    assert manifest.rows == rows
    size = sum(file.bytes for file in manifest.files)
    yield Figure(
        "far tier: a row in Parquet", size / rows, "bytes", 100, note=f"{rows:,} rows, {len(manifest.files)} files"
    )
    yield Figure("far tier: rows written", rows / took, "/s", note=f"{rows:,} rows in {took:.0f} s")
    searches = [_timed(lambda n=n: _cancelled(server, path, n)) for n in range(ROUNDS)]  # type: ignore[misc]
    yield Figure("far tier: cancel of one id", median(searches), "s", note=f"{len(manifest.files)} files")
    many = spark.range(100, 10_100).selectExpr("id")
    ids = spark.createDataFrame([(task_id(TASK, row.id),) for row in many.collect()], "id string")
    took = _timed(lambda: cancel(str(path), ids, broker_url=server.url))
    yield Figure("far tier: cancel of 10,000 ids", 10_000 / took, "ids/s", note=f"{took:.1f} s")
    rates = []
    for hour in sorted({file.hour for file in manifest.files})[:ROUNDS]:
        server.client().flushall()
        before = datetime.fromtimestamp(hour_us(hour) / 1e6 + 3600, UTC)
        began = monotonic()
        done = promote(spark, str(path), before, broker_url=server.url)
        rates.append(done.rows / (monotonic() - began))
        assert done.rows == done.sent + done.cancelled
    note = f"{done.rows:,} rows an hour; {min(rates):,.0f} to {max(rates):,.0f} in {len(rates)} hours"
    yield Figure("far tier: promotion of an hour", median(rates), "/s", 60_000, True, note)
    server.client().flushall()
    shutil.rmtree(path)


def _write(spark: SparkSession, server: PrivateRedis, rows: int, hours: int, path: Path) -> None:
    start = (int(time()) // 3600 + 48) * 3600
    late = spark.range(0, rows, 1, 2 * max(1, rows // 2_000_000)).selectExpr(
        "id AS order_id",
        "concat('c', pmod(hash(id), 100000)) AS customer",
        f"timestamp_micros(({start}L + id * {hours * 3600} div {rows}) * 1000000 + pmod(hash(id), 1000000)) AS eta",
    )
    given = {"broker_url": server.url, "task": TASK, "queue": QUEUE, "id_columns": "order_id", "far": str(path)}
    late.write.format("celery").options(**given).mode("append").save()


def _cancelled(server: PrivateRedis, path: Path, number: int) -> None:
    words = cancel(str(path), [task_id(TASK, number)], broker_url=server.url)
    assert set(words.values()) == {"cancelled"}


def _timed(work: Callable[[], object]) -> float:
    began = monotonic()
    work()
    return monotonic() - began
