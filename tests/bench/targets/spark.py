"""Measures what the data source for Spark promises, on a private Redis, beside Celery's own ways to send tasks."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import click
from celery import Celery
from kombu import Producer
from pyspark.sql import DataFrame, SparkSession

import celery_ext.spark
from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets import spark_far, spark_partitions
from tests.bench.targets.report import Figure, heading, machine

TASK, QUEUE, HOUR_S = "orders.close", "orders", 3600
#: Rows that are sent one by one, and in a batch of kombu; the rate does not depend on their number.
LOOP, BATCH = 3_000, 10_000
ROUNDS = 3


@click.command()
@click.option("--quick", is_flag=True, help="100,000 rows instead of 1,000,000: two minutes, and rougher figures.")
@click.option("--far-rows", default=20_000_000, show_default=True, help="Rows in the far tier; with --quick a tenth.")
@click.option("--only-far", is_flag=True, help="Measure the far tier only.")
@click.option("--only-partitions", is_flag=True, help="Measure what the number of partitions does only.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Also write this file.")
def main(quick: bool, far_rows: int, only_far: bool, only_partitions: bool, json_file: Path | None) -> None:
    """Prints each measure with its target and whether it is met.

    Spark runs as local[2], with Redis on the same machine. A message has about 1 KB. Run it on a machine with nothing
    else to do.
    """
    rows = 100_000 if quick else 1_000_000
    figures = []
    with PrivateRedis() as server, tempfile.TemporaryDirectory() as directory:
        spark = _session()
        about = {**machine(server.client()), "pyspark": spark.version}
        click.echo(", ".join(f"{name} {value}" for name, value in about.items()))
        click.echo(f"{rows:,} rows, local[2]; Redis without persistence\n\n{heading()}")
        try:
            far = spark_far.measure(spark, server, far_rows // (10 if quick else 1), Path(directory))
            parts = spark_partitions.measure(spark, server, rows)
            chosen = [found for found, is_chosen in ((far, only_far), (parts, only_partitions)) if is_chosen]
            for figure in chain(*(chosen or [measure(spark, server, rows, Path(directory)), parts, far])):
                figures.append(figure)
                click.echo(figure.line())
        finally:
            spark.stop()
    for figure in figures:
        if figure.note:
            click.echo(f"\n{figure.measure}: {figure.note}")
    if json_file:
        report = {"machine": about, "quick": quick, "figures": [figure.as_dict() for figure in figures]}
        json_file.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def measure(spark: SparkSession, server: PrivateRedis, rows: int, directory: Path) -> Iterator[Figure]:
    """Yields the figures. Each way to send is measured in turn with the others, several times."""
    orders = _orders(spark, rows).cache()
    orders.count()
    client = server.client()
    _write(orders.limit(1000), server)  # Python workers start
    client.flushall()
    took: dict[str, list[float]] = {"plain": [], "delayed": [], "send_task": [], "batch": []}
    for _ in range(ROUNDS):
        took["plain"].append(rows / _timed(lambda: _write(orders, server)))
        size = len(client.lindex(QUEUE, 0))
        client.flushall()
        took["send_task"].append(LOOP / _timed(lambda: _send_each(server)))
        took["batch"].append(BATCH / _timed(lambda: _send_batch(server)))
        client.flushall()
        took["delayed"].append(rows / _timed(lambda: _write(orders, server, countdown="1h", spread="1h")))
        if len(took["delayed"]) < ROUNDS:
            client.flushall()
    rates = {name: median(found) for name, found in took.items()}
    spread = {name: f"{min(found):,.0f} to {max(found):,.0f} in {ROUNDS} rounds" for name, found in took.items()}
    note = f"{size:,} bytes a message; {{}}"
    yield Figure("rows to a plain queue", rates["plain"], "/s", 100_000, True, note.format(spread["plain"]))
    yield Figure("rows into the delayed store", rates["delayed"], "/s", 60_000, True, spread["delayed"])
    yield Figure("app.send_task in a loop, the same rows", rates["send_task"], "/s", note=spread["send_task"])
    if hasattr(Producer, "batch"):
        yield Figure("Producer.batch, the same rows", rates["batch"], "/s", note=spread["batch"])
    yield Figure("plain queue / app.send_task", rates["plain"] / rates["send_task"], "times", 20, True)
    yield from _reading(spark, server, rows)
    yield from _guard(spark, server, min(rows, 100_000))
    yield from _micro_batches(spark, server, directory)


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.ui.enabled", "false")
    settings = {
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    celery_ext.spark.register(spark)
    return spark


def _orders(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr("id AS order_id", "concat('c', id % 100000) AS customer")


def _write(rows: DataFrame, server: PrivateRedis, **options: Any) -> None:
    given = {"broker_url": server.url, "task": TASK, "queue": QUEUE, "id_columns": "order_id", **options}
    rows.write.format("celery").options(**given).mode("append").save()


def _timed(work: Any) -> float:
    began = monotonic()
    work()
    return monotonic() - began


def _app(server: PrivateRedis) -> Celery:
    app = Celery("bench", broker=server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    return app


def _send_each(server: PrivateRedis) -> None:
    app = _app(server)
    for order in range(LOOP):
        app.send_task(TASK, kwargs={"order_id": order, "customer": f"c{order}"}, queue=QUEUE)
    app.close()


def _send_batch(server: PrivateRedis) -> None:
    if not hasattr(Producer, "batch"):
        return
    app = _app(server)
    with app.producer_pool.acquire(block=True) as producer, producer.batch():
        for order in range(BATCH):
            kwargs = {"order_id": order, "customer": f"c{order}"}
            app.send_task(TASK, kwargs=kwargs, queue=QUEUE, producer=producer)
    app.close()


def _reading(spark: SparkSession, server: PrivateRedis, rows: int) -> Iterator[Figure]:
    """Reads all columns of the messages that the last round has left waiting."""
    waiting = spark.read.format("celery").option("broker_url", server.url).option("queue", QUEUE)

    def read() -> None:
        waiting.load().write.format("noop").mode("overwrite").save()

    assert waiting.load().count() == rows
    found = [rows / _timed(read) for _ in range(ROUNDS)]
    spread = f"{min(found):,.0f} to {max(found):,.0f} in {ROUNDS} rounds"
    yield Figure("waiting messages read, all columns", median(found), "/s", 120_000, True, spread)


def _guard(spark: SparkSession, server: PrivateRedis, rows: int) -> Iterator[Figure]:
    """Lets a job fail at its last row, which leaves the guard, and runs it again without that row."""
    client = server.client()
    client.flushall()
    orders = _orders(spark, rows)
    bad = spark.range(1).selectExpr(f"{rows}L AS order_id", "'c' AS customer", "10 AS priority")
    try:
        _write(orders.selectExpr("*", "1 AS priority").union(bad), server, job_id="guarded")
    except Exception as error:
        if "is not a priority" not in str(error):
            raise
    key = "delayq:guard:guarded"
    yield Figure(
        "guard of a job that is not committed", client.memory_usage(key, 0) / client.scard(key), "bytes/row", 100
    )
    _write(orders, server, job_id="guarded")
    yield Figure("guards after the commit", float(client.exists(key)), "keys", 0)


def _micro_batches(spark: SparkSession, server: PrivateRedis, directory: Path) -> Iterator[Figure]:
    """Streams files of 100 rows, one at a time, and takes the durations that Spark gives for each batch."""
    arriving, ready, checkpoint = (directory / name for name in ("arriving", "ready", "checkpoint"))
    arriving.mkdir()
    given = {"broker_url": server.url, "task": TASK, "queue": QUEUE, "id_columns": "order_id"}
    _orders(spark, 100).coalesce(1).write.parquet(str(ready))
    [file] = ready.glob("*.parquet")
    stream = spark.readStream.schema("order_id long, customer string").parquet(str(arriving))
    stream = stream.withColumn("batch", stream.order_id)
    query = (
        stream.writeStream.format("celery")
        .options(**given)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )
    whole, writing = [], []
    for number in range(12):
        shutil.copy(file, arriving / f".{number}")
        (arriving / f".{number}").rename(arriving / f"{number}.parquet")
        query.processAllAvailable()
        last = next(progress for progress in reversed(query.recentProgress) if progress["numInputRows"])
        durations = last["durationMs"]
        whole.append(durations["triggerExecution"] / 1000)
        writing.append(durations["addBatch"] / 1000)
    query.stop()
    # The first batches start Python workers.
    yield Figure(
        "streaming micro-batch of 100 rows, all in all", median(whole[2:]), "s", 0.5, note="median of 10, by Spark"
    )
    yield Figure("of which planning, writing and commit of the sink", median(writing[2:]), "s")


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.targets.spark")
