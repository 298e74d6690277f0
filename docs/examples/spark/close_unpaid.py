"""Batch job: every order becomes a task that closes it, due 30 minutes after it: ``python close_unpaid.py DIRECTORY``.

Run again with the same ``--job-id``, also after it was killed, it sends what is missing, and nothing twice.
"""

from datetime import timedelta

import session
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


def closings(orders: DataFrame, after: timedelta) -> DataFrame:
    """Returns the tasks: ``eta`` is when one is due, the other columns are what it is called with."""
    due = sf.col("placed_at") + sf.lit(after)
    return orders.select("order_id", "customer", "items", "amount", "currency", due.alias("eta"))


def send(tasks: DataFrame, broker: str, job_id: str) -> None:
    """Sends tasks to a broker, each once in the job."""
    (
        tasks.write.format("celery")
        .options(broker_url=broker, **session.TASK)
        .option("job_id", job_id)
        .option("on_committed", "skip")  # a schedule may run this a second time for the same orders
        .mode("append")
        .save()
    )


def main() -> None:
    """Runs the job on the orders of a directory."""
    parser = session.options(__doc__)
    session.add_speed_up(parser)
    parser.add_argument("--job-id", default="close-unpaid", metavar="NAME", help="default close-unpaid")
    given = parser.parse_args()
    spark = session.start("close unpaid orders")
    orders = spark.read.parquet(str(given.directory / "orders"))
    send(closings(orders, session.CLOSED_AFTER / given.speed_up), given.broker, given.job_id)
    spark.stop()


if __name__ == "__main__":
    main()
