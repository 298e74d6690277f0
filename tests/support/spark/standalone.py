"""A standalone cluster of Spark on this machine: a master, and workers, each a JVM of its own."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pyspark

from tests.support.conditions import until
from tests.support.spark import session

HOME = Path(pyspark.__file__).parent
_CLASS = "org.apache.spark.deploy.{0}.{1}"
#: What an executor needs, and gets: less is refused by Spark.
EXECUTOR = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}


class StandaloneCluster:
    """A master and workers, each with one core. Ends all of them, and their executors, when it is closed.

    Args:
        directory: For their logs and files.
        workers: How many.

    Attributes:
        url: Master URL of the cluster.
        workers: The processes of the workers.
    """

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "Master", "--port", "0")
        self.url = self._told("master", r"Starting Spark master at (\S+)")
        for number in range(workers):
            arguments = ["--cores", "1", "--memory", "600m", "--work-dir", str(directory / f"work-{number}")]
            self._start(f"worker-{number}", "Worker", *arguments, self.url)
        self.workers = self._processes[1:]
        for number in range(workers):
            self._told(f"worker-{number}", "(Successfully registered) with master")

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """Ends a worker and its executors with ``kill -9``. Python workers end when their executor is gone."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(30)

    def close(self) -> None:
        """Ends what still runs."""
        for process in reversed(self._processes):
            if process.poll() is None:
                self.kill(process)

    def worker_of(self, pid: int) -> subprocess.Popen[bytes]:
        """Returns the worker on which a Python process runs for an executor."""
        pids = {worker.pid: worker for worker in self.workers}
        while pid not in pids:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pids[pid]

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), _CLASS.format(kind.lower(), kind)]
        environment = {**os.environ, **session.environment(), "SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}
        with (self._directory / name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            )

    def _told(self, name: str, pattern: str) -> str:
        """Waits for a line in the log of a process, and returns what it says."""
        log = self._directory / name
        found = until(lambda: re.search(pattern, log.read_text(errors="replace")), 120, f"{name} says {pattern}")
        return str(found[1])
