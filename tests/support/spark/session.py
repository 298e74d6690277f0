"""How the tests start Spark: quick, quiet, on this machine only."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from celery_ext.spark import register
from tests.support import ROOT
from tests.support.spark.stepped import SteppedDataSource

#: Returns what Spark and its Python workers have logged since the test began.
SparkLog = Callable[[], str]
#: The password of ``guarded_server``, and another.
PASSWORD, WRONG_PASSWORD = "pfc-Jx83-kept-secret", "pfc-Jx83-never-right"
#: Environment variables of Spark's processes: the URL of that server, this URL with the wrong password, and the URL of
#: no server.
BROKER_ENV, WRONG_ENV, GONE_ENV = "DELAYQ_TEST_BROKER", "DELAYQ_TEST_BROKER_WRONG", "DELAYQ_TEST_BROKER_GONE"
OLDEST_JAVA = 17
#: Not UTC, so that a mistake between local time and UTC shows.
TIME_ZONE = "Europe/Berlin"
CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": TIME_ZONE,
    # Rows reach a Python writer in batches of this many, so that a few of them are enough for several batches.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
    # A writer whose Spark task is over may go on for so long, which some tests need.
    "spark.python.task.killTimeout": "60s",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def why_no_java() -> str | None:
    """Returns why Spark cannot run here, or None."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if not java or not Path(java).exists():
        return f"Spark needs Java {OLDEST_JAVA} or later, and there is none on the PATH or in JAVA_HOME"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(\d+)', output)
    if found is None or int(found[1]) < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or later; {java} says: {output.strip() or 'nothing'}"
    return None


def environment() -> dict[str, str]:
    """Returns the variables that Spark's processes need: the Python of the tests, and where the tests are."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def start(directory: Path, master: str = "local[2,4]", conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Starts Spark in this process, which must have none.

    Args:
        directory: Directory for Spark's files.
        master: ``local[2,4]`` runs a task up to four times; plain ``local[2]`` never retries.
        conf: Further settings.
    """
    os.environ.update(environment())
    events = directory / "events"
    events.mkdir()
    settings = {
        **CONF,
        "spark.eventLog.dir": events.as_uri(),
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        **conf,
    }
    builder = SparkSession.builder.master(master).appName("kombu-delayq tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(SteppedDataSource)
    return spark


def stop(spark: SparkSession) -> None:
    """Ends Spark and its JVM."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    process = gateway.proc  # type: ignore[union-attr]
    with suppress(Exception):  # the JVM hangs up
        gateway.shutdown()  # type: ignore[union-attr]
    process.stdin.close()
    process.wait(30)


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Sends the stderr of processes that start meanwhile to a file. Python workers get the stderr of their JVM."""
    before = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
