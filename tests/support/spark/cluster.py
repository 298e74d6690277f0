"""A Spark cluster on this machine, with a host for each worker: Spark runs no copy of a task on the host of another."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.support.conditions import until
from tests.support.spark import session

#: Addresses of the loopback device, which Spark takes for two hosts.
HOSTS = ("127.0.0.1", "127.0.0.2")
_SMALL = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """Runs a master and a worker with one core on each host; yields the master's URL."""
    directory.mkdir()
    started: list[subprocess.Popen[bytes]] = []
    try:
        log = directory / "master.log"
        started.append(_daemon(log, "master.Master", HOSTS[0]))
        master = until(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), 60)[1]  # type: ignore[index]
        for host in HOSTS:
            options = ("--cores", "1", "--memory", "640m", "--work-dir", str(directory / host), master)
            started.append(_daemon(directory / f"{host}.log", "worker.Worker", host, *options))
        until(lambda: log.read_text().count("Registering worker") == len(HOSTS), 60)
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def _daemon(log: Path, name: str, host: str, *options: str) -> subprocess.Popen[bytes]:
    home = Path(pyspark.__file__).parent
    command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
    with log.open("wb") as file:
        return subprocess.Popen(
            [*command, "--host", host, "--port", "0", "--webui-port", "0", *options],
            env={**os.environ, **session.environment(), **_SMALL, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
