"""An Airflow DAG that promotes what is due soon each hour, and cleans up each day. Put it into the folder of DAGs.

Set the environment variable GARAGE_BROKER of the workers to the URL of the broker, and GARAGE_FAR to the folder. The
Python of the workers needs kombu-delayq[spark], and Java 17 or later.
"""

import os
from datetime import datetime, timedelta

from airflow.sdk import dag, task

#: A run that fails is tried again; after that the next one completes it.
RETRIES = {"retries": 2, "retry_delay": timedelta(minutes=5)}
FAR = os.environ.get("GARAGE_FAR", "/mnt/far")


@dag(schedule="7 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1, default_args=RETRIES)
def promote_reminders() -> None:
    """Loads what is due within two hours into Redis."""

    @task
    def promote() -> int:
        """Returns how many reminders Redis was given."""
        from pyspark.sql import SparkSession

        from celery_ext.spark import promote

        spark = SparkSession.builder.appName("promote reminders").getOrCreate()
        try:
            return promote(spark, FAR, broker_url_env="GARAGE_BROKER").sent
        finally:
            spark.stop()

    promote()


@dag(schedule="30 4 * * *", start_date=datetime(2026, 1, 1), catchup=False, default_args=RETRIES)
def clean_up_reminders() -> None:
    """Removes files that nobody needs."""

    @task
    def vacuum() -> None:
        """Needs no Spark session."""
        from celery_ext.spark import vacuum

        vacuum(FAR)

    vacuum()


promote_reminders()
clean_up_reminders()
