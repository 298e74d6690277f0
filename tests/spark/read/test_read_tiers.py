"""A DataFrame has what waits in Redis and in Parquet files, before and after a promotion."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import redis
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import promote
from celery_ext.spark.far.manifest import HOUR_US


def test_a_promotion_moves_rows_and_changes_none(
    spark: SparkSession, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """Rows that a job has written to both tiers are read from both, and all from where they are after a promotion."""
    far, now = str(tmp_path / "far"), datetime.now(UTC)
    etas = [now + timedelta(hours=1), *(now + timedelta(days=2, hours=n) for n in range(3))]
    rows = spark.createDataFrame(list(enumerate(etas)), "order_id int, eta timestamp")
    given = {"broker_url": redis_server.url, "task": "orders.close", "queue": "orders", "id_columns": "order_id"}
    rows.write.format("celery").options(**given, far=far).mode("append").save()
    waiting = spark.read.format("celery").options(broker_url=redis_server.url, far=far, partitions=3).load()
    order = f.get_json_object("kwargs", "$.order_id").cast("int").alias("order_id")

    def found() -> list[tuple[str, int, datetime]]:
        return sorted(tuple(row) for row in waiting.select("layout", order, "due").collect())

    local = [row.eta for row in rows.orderBy("order_id").collect()]
    assert found() == [("far", 1, local[1]), ("far", 2, local[2]), ("far", 3, local[3]), ("hash", 0, local[0])]
    hour_ends = datetime.fromtimestamp((etas[1].timestamp() * 1e6 // HOUR_US + 1) * HOUR_US / 1e6, UTC)
    assert promote(spark, far, hour_ends, broker_url=redis_server.url).sent == 1
    assert found() == [("far", 2, local[2]), ("far", 3, local[3]), ("hash", 0, local[0]), ("hash", 1, local[1])]
