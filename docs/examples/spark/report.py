"""What ran, and how late, by Spark: ``python report.py DIRECTORY``. Exit code 1 if it is not what should have run."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import cancel_paid
import session
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

CLOSED = "order_id string, amount string, units int, due_at timestamp, closed_at timestamp, worker string"
DONE = "paid_until timestamp, done_by timestamp"
#: What became of an order. One that is cancelled too late was paid when its task was due, or just before.
UNPAID, CANCELLED, TOO_LATE = "never paid", "paid in time", "paid too late"
#: Where lateness is looked at.
PERCENTILES = (0.5, 0.99, 1.0)


@dataclass(frozen=True)
class Report:
    """What is told of all orders.

    Attributes:
        kinds: By what became of the orders, a row with their counts.
        late_ms: Lateness of the closings in ms, at ``PERCENTILES``; empty when there are none.
        money: A row for each currency, with the amount of the closed orders.
        wrong_amounts: Number of tasks that got another amount than their order has.
        early: Number of tasks that ran before they were due.
    """

    kinds: dict[str, Row]
    late_ms: list[float]
    money: list[Row]
    wrong_amounts: int
    early: int

    @property
    def problems(self) -> list[str]:
        """What should not be, each in words; empty when all is well."""
        found = {
            "unpaid orders were not closed": self._sum(UNPAID, "open"),
            "orders were closed after their task had been cancelled": self._sum(CANCELLED, "closed"),
            "orders were closed more than once": sum(row.twice for row in self.kinds.values()),
            "orders were closed before their time": self.early,
            "tasks got another amount than their order has": self.wrong_amounts,
        }
        return [f"{count:,} {what}" for what, count in found.items() if count]

    def lines(self) -> Iterator[str]:
        """Yields the report, for reading."""
        yield f"{'':15}{'orders':>10}{'closed':>10}{'not closed':>12}"
        for kind, row in self.kinds.items():
            yield f"{kind:15}{row.orders:10,}{row.closed:10,}{row.open:12,}"
        yield ""
        if self.late_ms:
            half, most, worst = (f"{late:,.0f} ms" for late in self.late_ms)
            yield f"closed late by  {half} (median), {most} (99 %), {worst} (worst)"
        units = sum(row.units for row in self.money)
        yield f"back in stock   {units:,} things, of " + ", ".join(
            f"{row.currency} {row.amount:,}" for row in self.money
        )

    def _sum(self, kind: str, column: str) -> int:
        return int(self.kinds[kind][column]) if kind in self.kinds else 0


def judge(spark: SparkSession, directory: Path, after: timedelta) -> Report:
    """Compares what ran with what should have.

    Args:
        spark: The session.
        directory: Of orders, payments, cancellations and closings.
        after: How long after an order its task is due.
    """
    ledger = _ledger(spark, directory, after).cache()
    kinds = ledger.groupBy("kind").agg(
        sf.count("*").alias("orders"),
        sf.count("times").alias("closed"),
        sf.count_if(sf.col("times").isNull()).alias("open"),
        sf.count_if(sf.col("times") > 1).alias("twice"),
    )
    closed = ledger.where("times is not null").withColumn("late_ms", _ms("closed_at") - _ms("due"))
    late = closed.agg(
        sf.percentile("late_ms", PERCENTILES).alias("late_ms"),
        sf.count_if(sf.col("late_ms") < 0).alias("early"),
        sf.count_if(sf.col("told") != sf.col("amount")).alias("wrong"),
    )
    money = closed.groupBy("currency").agg(sf.sum("amount").alias("amount"), sf.sum("units").alias("units"))
    [figures] = late.collect()
    counted = {row.kind: row for row in kinds.collect()}
    return Report(
        {kind: counted[kind] for kind in (UNPAID, CANCELLED, TOO_LATE) if kind in counted},
        figures.late_ms or [],
        money.orderBy("currency").collect(),
        figures.wrong,
        figures.early,
    )


def _ledger(spark: SparkSession, directory: Path, after: timedelta) -> DataFrame:
    """Returns a row for each order: when its task was due, what became of it, and how often it was closed."""

    def read(name: str, schema: str) -> DataFrame:
        path = directory / name
        # Nothing is there before the first cancellation or closing.
        return spark.read.schema(schema).json(str(path)) if path.exists() else spark.createDataFrame([], schema)

    payments = read("payments", cancel_paid.PAYMENT).where("status = 'captured'")
    done = payments.join(sf.broadcast(read("cancelled.json", DONE)), sf.col("paid_at") <= sf.col("paid_until"), "left")
    paid = done.groupBy("order_id").agg(sf.min("paid_at").alias("paid_at"), sf.min("done_by").alias("done_by"))
    closings = read("closed", CLOSED).groupBy("order_id")
    closed = closings.agg(
        sf.count("*").alias("times"),
        sf.min("closed_at").alias("closed_at"),
        sf.first("units").alias("units"),
        sf.first(sf.col("amount").cast("decimal(12,2)")).alias("told"),
    )
    due = sf.col("placed_at") + sf.lit(after)
    kind = (
        sf.when(sf.col("paid_at").isNull(), UNPAID)
        .when(sf.col("done_by") < sf.col("due"), CANCELLED)  # for sure: its task still waited then
        .otherwise(TOO_LATE)
    )
    orders = spark.read.parquet(str(directory / "orders")).withColumn("due", due)
    return orders.join(paid, "order_id", "left").join(closed, "order_id", "left").withColumn("kind", kind)


def _ms(name: str) -> Any:
    return sf.unix_micros(name) / 1000


def main() -> None:
    """Prints the report on a directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="what orders.py has written")
    session.add_speed_up(parser)
    given = parser.parse_args()
    spark = session.start("report")
    report = judge(spark, given.directory, session.CLOSED_AFTER / given.speed_up)
    print("\n".join([*report.lines(), *report.problems]))
    spark.stop()
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
