"""What the data source for Spark writes and reads a second, beside Celery's own way to send tasks."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import psutil
from celery import Celery

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.daemon import MODULES
from tests.bench.targets.report import Figure

TASK, QUEUE = "orders.close", "orders"
#: Rows that are sent one by one; the rate does not depend on their number.
LOOP, ROUNDS = 3_000, 3


class Cpu(NamedTuple):
    """CPU time that the processes of a job have taken, in s."""

    jvm: float
    python: float
    redis: float

    @classmethod
    def of(cls, jvm: psutil.Process, redis: psutil.Process) -> "Cpu":
        """Returns what they have taken until now, with the Python workers of the JVM that have ended."""
        own = jvm.cpu_times()
        workers = [own[2:4], *(child.cpu_times()[:4] for child in jvm.children(recursive=True))]
        return cls(sum(own[:2]), sum(map(sum, workers)), sum(redis.cpu_times()[:2]))

    def since(self, before: "Cpu") -> "Cpu":
        """Returns what they have taken after ``before``."""
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Runs Spark as local[2], with Redis on the same machine; each way to send in turn with the others."""
    from pyspark.sql import SparkSession

    import celery_ext.spark

    rows, client = 100_000 if quick else 500_000, server.client()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "ui.enabled": "false",
        "driver.memory": "4g",
        "driver.host": "127.0.0.1",
        "ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    celery_ext.spark.register(spark)
    jvm, redis = psutil.Process(spark.sparkContext._gateway.proc.pid), psutil.Process(server.pid)
    cpu: dict[str, list[Cpu]] = {"plain": [], "delayed": []}

    def written(kind: str, **options: Any) -> float:
        before = Cpu.of(jvm, redis)
        rate = rows / _timed(lambda: _write(orders, server, **options))
        cpu[kind].append(Cpu.of(jvm, redis).since(before))
        return rate

    try:
        orders = spark.range(0, rows, 1, 2).selectExpr("id AS order_id", "concat('c', id % 100000) AS customer").cache()
        orders.count()
        _write(orders.limit(1000), server)  # Python workers start
        client.flushall()
        took: dict[str, list[float]] = {"plain": [], "loop": [], "delayed": []}
        for _ in range(ROUNDS):
            client.flushall()
            took["plain"].append(written("plain"))
            client.flushall()
            took["loop"].append(LOOP / _timed(lambda: _send_each(server)))
            client.flushall()
            took["delayed"].append(written("delayed", countdown="1h", spread="1h"))
        waiting = spark.read.format("celery").option("broker_url", server.url).option("queue", QUEUE)
        read = [
            rows / _timed(lambda: waiting.load().write.format("noop").mode("overwrite").save()) for _ in range(ROUNDS)
        ]
    finally:
        spark.stop()
    note = f"{rows:,} rows, median of {ROUNDS}"
    yield Figure("rows to a plain queue", median(took["plain"]), "/s", 100_000, True, note)
    yield Figure("rows into the delayed store", median(took["delayed"]), "/s", 60_000, True)
    for kind, name, most_us in (
        ("plain", "CPU of a row to a plain queue", 30),
        ("delayed", "CPU of a delayed row", 36),
    ):
        each = [Cpu(*(part / rows * 1e6 for part in one)) for one in cpu[kind]]
        yield Figure(name, median(map(sum, each)), "µs", most_us)
        for part in Cpu._fields:
            yield Figure(f"  {part}", median(getattr(one, part) for one in each), "µs")
    yield Figure("app.send_task in a loop, stock", median(took["loop"]), "/s")
    yield Figure("waiting messages read, all columns", median(read), "/s", 120_000, True)
    spark_s, all_s = _imports_s("pyspark.worker", "pyarrow"), _imports_s("pyspark.worker", "pyarrow", *MODULES)
    yield Figure("CPU of what a Python worker imports: Spark", spark_s, "s", note=f"median of {ROUNDS} processes")
    yield Figure("  and the data source, without its daemon", all_s - spark_s, "s")


def _write(rows: Any, server: PrivateRedis, **options: Any) -> None:
    given = {"broker_url": server.url, "task": TASK, "queue": QUEUE, "id_columns": "order_id", **options}
    rows.write.format("celery").options(**given).mode("append").save()


def _imports_s(*modules: str) -> float:
    """Returns the CPU time of a process that imports modules, in s."""
    took_s = []
    for _ in range(ROUNDS + 1):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], check=True)
        after = getrusage(RUSAGE_CHILDREN)
        took_s.append(sum(after[:2]) - sum(before[:2]))
    return median(took_s[1:])


def _timed(work: Callable[[], None]) -> float:
    began = monotonic()
    work()
    return monotonic() - began


def _send_each(server: PrivateRedis) -> None:
    app = Celery("bench", broker=server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    for order in range(LOOP):
        app.send_task(TASK, kwargs={"order_id": order, "customer": f"c{order}"}, queue=QUEUE)
    app.close()
