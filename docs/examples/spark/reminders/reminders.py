"""The jobs of the garage: schedule a year of reminders, cancel those of cars that were sold, promote what is near."""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import celery_ext.spark

#: Task, queue, and the column from which the task id is made: the same column finds the task again.
TASK = {"task": "garage.remind", "queue": "reminders", "id_columns": "car"}
SERVICES = ("annual check", "emission test", "winter tyres", "summer tyres", "brake fluid")
LANGUAGES = ("de", "en", "fr", "nl", "pl")
#: Number of the first car.
FIRST_CAR = 1_000_000
#: One car in so many is sold.
SOLD = 100


def of_cars(spark: SparkSession, first: int, count: int, begin: datetime, within: timedelta) -> DataFrame:
    """Returns reminders, one for each car, due evenly through a time.

    Args:
        spark: The session.
        first: Number of the first car.
        count: How many cars.
        begin: When the first reminder is due.
        within: Over how long they are due.
    """
    begin_us, within_us = round(begin.timestamp() * 1e6), within // timedelta(microseconds=1)
    due = f"timestamp_micros({begin_us}L + cast(id AS decimal(20)) * {within_us}L div {count})"
    return spark.range(0, count, 1, spark.sparkContext.defaultParallelism).select(
        sf.expr(due).alias("eta"),
        (sf.col("id") + first).alias("car"),
        _one_of(SERVICES, 1).alias("service"),
        _one_of(LANGUAGES, 2).alias("language"),
    )


def schedule(reminders: DataFrame, broker: str, far: str, job_id: str, horizon: str) -> None:
    """Writes reminders as Parquet; those that are due within the horizon go to Redis at once."""
    (
        reminders.write.format("celery")
        .options(broker_url=broker, far=far, far_horizon=horizon, **TASK)
        .option("job_id", job_id)
        .mode("append")
        .save()
    )


def waiting(spark: SparkSession, broker: str, far: str, columns: str) -> DataFrame:
    """Returns all reminders that wait, in the files and in Redis."""
    return spark.read.format("celery").options(broker_url=broker, far=far, columns=columns).load()


def cancel_sold(reminders: DataFrame, broker: str, far: str) -> int:
    """Cancels the reminders of the cars that are sold. Returns how many still waited."""
    sold = reminders.where(sf.col("car") % SOLD == 0).select("car").collect()
    ids = [celery_ext.spark.task_id(TASK["task"], row["car"]) for row in sold]
    words = celery_ext.spark.cancel(far, ids, broker_url=broker)
    return sum(word == "cancelled" for word in words.values())


def _one_of(words: tuple[str, ...], salt: int) -> object:
    number = sf.pmod(sf.xxhash64(sf.col("id"), sf.lit(salt)), sf.lit(len(words)))
    return sf.element_at(sf.array(*map(sf.lit, words)), number.cast("int") + 1)
