"""Spark, as the jobs of this example start it."""

import argparse
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from pyspark.sql import SparkSession

from celery_ext.spark import register

#: Oldest Java that Spark 4 runs on.
OLDEST_JAVA = 17
#: When an order is closed that is not paid.
CLOSED_AFTER = timedelta(minutes=30)
#: Task, queue, and the column from which the task id is made: the same column finds the task again.
TASK = {"task": "shop.close_unpaid_order", "queue": "closing", "id_columns": "order_id"}


def start(name: str, conf: dict[str, str] | None = None) -> SparkSession:
    """Starts Spark, or takes that of ``spark-submit``, with the format ``celery``.

    Args:
        name: Of the job.
        conf: Settings of Spark beside those that it has.
    """
    reason = why_no_java()
    if reason:
        sys.exit(reason)
    # Spark runs ``python3`` of the PATH otherwise, which may be one that lacks Celery and this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    settings = {
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    for setting, value in {**settings, **(conf or {})}.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    signal.signal(signal.SIGINT, interrupt)
    register(spark)
    return spark


def interrupt(*_: object) -> NoReturn:
    """Answers Ctrl-C. Spark's own answer is a call of the JVM, which fails in the middle of another one."""
    logging.disable()  # of the call that was interrupted
    raise KeyboardInterrupt


def why_no_java() -> str | None:
    """Says why Spark cannot run here, or returns None."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    needed = f"Spark needs Java {OLDEST_JAVA} or later"
    if java is None:
        return f"{needed}, and there is none {f'in JAVA_HOME, {home}' if home else 'on the PATH'}."
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < OLDEST_JAVA:
        return f"{needed}, and {java} is {'Java ' + found[1] if found else 'none'}."
    return None


def options(about: str | None) -> argparse.ArgumentParser:
    """Returns a parser of what every job of this example is told."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="what orders.py has written")
    parser.add_argument(
        "--broker", default="redis://localhost:6379/0", metavar="URL", help="default redis://localhost:6379/0"
    )
    return parser


def add_speed_up(parser: argparse.ArgumentParser) -> None:
    """Lets a job be told how many times faster the time goes."""
    parser.add_argument("--speed-up", type=float, default=60, metavar="N", help="as in orders.py (default 60)")
