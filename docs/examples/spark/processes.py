"""What the demo starts beside itself, and ends by its process id: Celery workers and Spark."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any

import session
from pyspark.sql import SparkSession

#: How long a process may take to start and to end, in s.
PATIENCE_S = 60.0
#: How long the JVM may take to end, in s. It may not, when it was interrupted.
JVM_S = 10.0
#: How much of a log is shown when something goes wrong, in characters.
TAIL = 3000
#: A small Spark on this machine: two cores, one JVM that starts quickly, nothing that listens to other machines.
SPARK = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
}


class Worker:
    """A ``celery worker``.

    Args:
        name: Node name before the ``@``.
        log: File that takes what it says.
        directory: Of its module ``tasks``.
        queue: The queue that it consumes.
    """

    def __init__(self, name: str, log: Path, directory: Path, queue: str) -> None:
        self._name = name
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "tasks", "worker"),
                    *("--queues", queue, "--hostname", f"{name}@%h", "--concurrency", "1"),
                    *("--loglevel", "INFO", "--without-mingle", "--without-gossip"),
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the demo, which ends it
            )

    def await_ready(self) -> None:
        """Waits until it consumes."""
        deadline = monotonic() + PATIENCE_S
        while b" ready." not in self._log.read_bytes():
            if self._process.poll() is not None or monotonic() > deadline:
                raise SystemExit(f"worker {self._name} did not start:\n{tail(self._log)}")
            sleep(0.05)

    def terminate(self) -> None:
        """Lets it end what it runs, and then itself."""
        self._process.terminate()

    def await_end(self) -> None:
        """Waits until it has ended, and ends it if it does not."""
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def workers(
    names: Sequence[str], directory: Path, app: Path = Path(__file__).parent, queue: str = session.TASK["queue"]
) -> Iterator[list[Worker]]:
    """Runs workers, whose logs are kept in a directory.

    Args:
        names: Their names.
        directory: For their logs.
        app: Directory of their module ``tasks``.
        queue: The queue that they consume.
    """
    started: list[Worker] = []
    try:
        for name in names:
            started.append(Worker(name, directory / f"{name}.log", app, queue))  # noqa: PERF401 those that have started are ended
        yield started
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.await_end()


@contextmanager
def spark(directory: Path, conf: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Runs Spark, whose log is kept in a directory, and ends its JVM."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    log = directory / "spark.log"
    with stderr_into(log):
        started = session.start("demo", {**SPARK, **conf, "spark.local.dir": str(directory / "spark")})
    try:
        yield started
    except Exception:
        print(tail(log), file=sys.stderr)
        raise
    finally:
        end(started)


def end(spark: SparkSession) -> None:
    """Ends Spark and its JVM."""
    gateway: Any = spark.sparkContext._gateway
    with suppress(Exception):  # a signal may have come in the middle of a call, and then no other can be made
        spark.stop()
    with suppress(Exception):  # the JVM hangs up
        gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(JVM_S)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Processes that are started within write their stderr there; the JVM hands its own on to its Python workers."""
    before = os.dup(2)
    try:
        with path.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def tail(log: Path) -> str:
    """Returns the end of a log."""
    return log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
