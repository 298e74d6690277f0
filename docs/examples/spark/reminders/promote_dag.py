"""An Airflow DAG that promotes what is due soon each hour. Put it into the folder of DAGs.

Set the environment variable GARAGE_BROKER of the workers to the URL of the broker, and GARAGE_TABLE to the table. The
Python of the workers needs kombu-delayq[spark], and Java 17 or later.
"""

import os
from datetime import datetime, timedelta

from airflow.sdk import dag, task

#: A run that fails is tried again; after that the next one completes it.
RETRIES = {"retries": 2, "retry_delay": timedelta(minutes=5)}
TABLE = os.environ.get("GARAGE_TABLE", "/mnt/reminders")


@dag(schedule="7 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1, default_args=RETRIES)
def promote_reminders() -> None:
    """Sends what is due within two hours to Redis."""

    @task
    def promote() -> int:
        """Returns how many reminders Redis was given."""
        from pyspark.sql import SparkSession

        from celery_ext.spark import promote

        spark = SparkSession.builder.appName("promote reminders").getOrCreate()
        given = {"task": "garage.remind", "queue": "reminders", "id_columns": "car"}
        try:
            return promote(spark, TABLE, broker_url_env="GARAGE_BROKER", **given).sent
        finally:
            spark.stop()

    promote()


promote_reminders()
