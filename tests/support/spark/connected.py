"""A Spark job through Spark Connect, in a process of its own, which also starts the server.

Run as ``python -m tests.support.spark.connected JSON``, with an object that has the arguments of ``run``.
"""

import json
import os
import sys

from pyspark.sql import SparkSession

from celery_ext.spark import register
from tests.support.spark import session


def run(directory: str, url: str, count: int) -> None:
    """Writes rows to the queue ``connected``, and prints how many waiting tasks it reads from there.

    Args:
        directory: For files of Spark.
        url: URL of the broker.
        count: Number of rows.
    """
    os.environ.update(session.environment())
    os.environ["SPARK_TESTING"] = "1"  # any free port instead of 15002
    builder = SparkSession.builder.remote("local[2]").appName("kombu-delayq tests")
    settings = {**session.CONF, "spark.eventLog.enabled": "false", "spark.local.dir": directory}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    rows = spark.range(count).selectExpr("array(id) AS args", "timestamp'2100-01-01 00:00:00+00:00' AS eta")
    options = {"broker_url": url, "task": "proj.record", "queue": "connected", "job_id": "connected"}
    rows.write.format("celery").options(**options).mode("append").save()
    read = spark.read.format("celery").options(broker_url=url, queue="connected").load()
    print(json.dumps({"client": type(spark).__module__, "read": read.count()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
