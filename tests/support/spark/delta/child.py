"""Promotes a table of Delta Lake, in a process whose Spark is one that Delta Lake has a release for.

Run as ``python -m tests.support.spark.delta.child JSON``, with an object that has the arguments of ``run``.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame

from celery_ext.spark import cancel, promote
from tests.support.spark import session

BEGIN = datetime(2040, 1, 1, tzinfo=UTC)
LATE = BEGIN + timedelta(days=1)


def run(directory: str, url: str, jars: str) -> None:
    """Prints what promotions of a table by its path, and of one by its name, have done.

    Args:
        directory: For files of Spark.
        url: URL of the broker.
        jars: Directory with the jars of Delta Lake.
    """
    conf = {
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.eventLog.enabled": "false",
        "spark.jars": ",".join(map(str, Path(jars).glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    spark = session.start(Path(directory), conf=conf)
    given = {"broker_url": url, "task": "t"}

    def rows(ids: range) -> DataFrame:
        return spark.range(ids.start, ids.stop).selectExpr(
            "id",
            "CAST(id AS STRING) AS task_id",
            "map('a', id) AS tags",
            f"timestamp'{BEGIN.isoformat()}' + make_interval(0, 0, 0, 0, id % 2, 0, id) AS eta",
        )

    found: dict[str, object] = {}
    for table in (f"{directory}/by_path", "by_name"):
        write = rows(range(40)).write.format("delta")
        write.save(table) if "/" in table else write.saveAsTable(table)
        name = f"delta.`{table}`" if "/" in table else table
        spark.sql(f"DELETE FROM {name} WHERE id = 7")  # noqa: S608 a table of this test
        queue = {**given, "queue": table.rpartition("/")[2]}

        def with_late_rows(rows_of_hour: DataFrame, name: str = name) -> DataFrame:
            if spark.table(name).where("id >= 40").isEmpty():
                rows(range(40, 42)).write.insertInto(name)
            return rows_of_hour

        before = spark.table(name).count()
        first = promote(spark, table, until=LATE, select=with_late_rows, **queue)
        left = sorted(row.id for row in spark.table(name).collect())
        second = promote(spark, table, until=LATE, **queue)
        cancelled = cancel(rows(range(8, 10)), table, **queue)
        after = spark.table(name).count()
        found[queue["queue"]] = [before, first.sent, left, second.sent, cancelled, after]
    print(json.dumps({"spark": spark.version, **found}), flush=True)
    session.stop(spark)


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
