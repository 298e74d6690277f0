"""Streaming job: payments that come in cancel the tasks of their orders: ``python cancel_paid.py DIRECTORY``.

It goes on until Ctrl-C. Started again, it continues where it was.
"""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

PAYMENT = "order_id string, status string, method string, amount decimal(12,2), currency string, paid_at timestamp"

#: Most files of payments in a batch: to look at more than 32, Spark would start a job of its own.
FILES = 30


def cancels(payments: DataFrame) -> DataFrame:
    """Returns what is to be done: the task of each order that is paid is cancelled."""
    paid = payments.where("status = 'captured'")
    return paid.select(sf.lit("cancel").alias("op"), "order_id")


def start(spark: SparkSession, directory: Path, broker: str) -> StreamingQuery:
    """Starts the stream."""
    source = spark.readStream.schema(PAYMENT).option("maxFilesPerTrigger", FILES)
    payments = source.json(str(directory / "payments"))
    return (
        # Only so that Spark tells of each batch up to when it has payments, see Journal.
        cancels(payments.withWatermark("paid_at", "0 seconds"))
        .writeStream.format("celery")
        .options(broker_url=broker, **session.TASK)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .outputMode("append")
        .start()
    )


class Journal:
    """Notes until when payments have come in whose tasks have been cancelled, for the report.

    Args:
        query: The stream.
        path: JSON lines are appended to this file: all payments with a time up to ``paid_until`` had been dealt with
            at ``done_by``.
    """

    def __init__(self, query: StreamingQuery, path: Path) -> None:
        self._query = query
        self._path = path
        self._last = -1

    def note(self) -> list[str]:
        """Notes the batches that have ended since the last time. Returns a line on each."""
        batches = self._query.recentProgress
        done_by = datetime.now(UTC)  # or earlier
        lines = []
        for batch in batches:
            if batch.batchId <= self._last or "max" not in batch.eventTime:
                continue  # is known, or has no payments
            self._last = batch.batchId
            entry = {"paid_until": batch.eventTime["max"], "done_by": done_by.isoformat()}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(entry)}\n")
            lines.append(f"batch {batch.batchId}: {batch.numInputRows} payments in {batch.batchDuration / 1000:.1f} s")
        return lines


def main() -> None:
    """Runs the stream on the payments of a directory."""
    given = session.options(__doc__).parse_args()
    spark = session.start("cancel what is paid")
    query = start(spark, given.directory, given.broker)
    journal = Journal(query, given.directory / "cancelled.json")
    print("payments are awaited; Ctrl-C ends this", flush=True)
    try:
        while query.isActive:
            time.sleep(0.5)
            for line in journal.note():
                print(line, flush=True)
        query.awaitTermination()  # raises what has ended it
    except KeyboardInterrupt:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
