"""The jobs of the garage: schedule a year of reminders, promote what is near, cancel those of cars that are sold."""

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
#: The folder of a row, in UTC whatever the time zone of the session is.
HOUR = "replace(left(TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, unix_seconds(eta)), 13), ' ', 'T')"


def of_cars(spark: SparkSession, first: int, count: int, begin: datetime, within: timedelta) -> DataFrame:
    """Returns reminders, one for each car, due through a time in no order.

    Args:
        spark: The session.
        first: Number of the first car.
        count: How many cars.
        begin: When the first reminder is due.
        within: Over how long they are due.
    """
    begin_us, within_us = round(begin.timestamp() * 1e6), within // timedelta(microseconds=1)
    return spark.range(0, count, 1, spark.sparkContext.defaultParallelism).select(
        sf.expr(f"timestamp_micros({begin_us}L + pmod(xxhash64(id, 0), {within_us}L))").alias("eta"),
        (sf.col("id") + first).alias("car"),
        _one_of(SERVICES, 1).alias("service"),
        _one_of(LANGUAGES, 2).alias("language"),
    )


def schedule(reminders: DataFrame, table: str, is_delta: bool = False, is_sorted: bool = True) -> None:
    """Appends reminders to the table.

    Args:
        reminders: The reminders.
        table: Its folder.
        is_delta: Whether it is a table of Delta Lake; else it is plain Parquet by hour.
        is_sorted: Whether the rows are sorted first, so that there are fewer files, which compress better.
    """
    rows = reminders if is_delta else reminders.withColumn("hour", sf.expr(HOUR))
    if is_sorted:
        rows = rows.repartitionByRange(sf.col("eta")).sortWithinPartitions("eta" if is_delta else "hour", "car")
    if is_delta:
        rows.write.format("delta").mode("append").save(table)
    else:
        rows.write.partitionBy("hour").mode("append").parquet(table)


def promote(spark: SparkSession, table: str, sold: str, broker: str, until: datetime) -> celery_ext.spark.Promoted:
    """Sends the reminders that are due soon to Redis, but for those of the cars in the folder ``sold``."""

    def not_sold(reminders: DataFrame) -> DataFrame:
        return reminders.join(spark.read.parquet(sold), "car", "left_anti")

    return celery_ext.spark.promote(spark, table, until=until, select=not_sold, broker_url=broker, **TASK)


def sell(cars: DataFrame, table: str, sold: str, broker: str) -> int:
    """Notes that cars are sold, and cancels what was promoted. Returns how many reminders waited in Redis."""
    cars.write.mode("append").parquet(sold)
    return celery_ext.spark.cancel(cars, table, broker_url=broker, **TASK)


def _one_of(words: tuple[str, ...], salt: int) -> object:
    number = sf.pmod(sf.xxhash64(sf.col("id"), sf.lit(salt)), sf.lit(len(words)))
    return sf.element_at(sf.array(*map(sf.lit, words)), number.cast("int") + 1)
