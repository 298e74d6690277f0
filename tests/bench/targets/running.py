"""What a running task pays to know whether it is to stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import BROKER
from tests.bench.targets.report import Figure

#: Looks of a task, and tasks.
LOOKS, TASKS = 200_000, 5


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets tasks look in a worker with threads, and in one with processes."""
    os.environ[BROKER] = server.url
    from tests.bench.targets.running_tasks import look  # its app is on this broker

    for pool in ("threads", "prefork"):
        with worker(server, pool):
            found = [look.delay(LOOKS // (10 if quick else 1)).get(timeout=60) for _ in range(TASKS)]
        yield Figure(f"cancelled() in a task, pool {pool}", median(each for _, each in found), "µs", 1.0)
        yield Figure(f"the first cancelled() of a task, pool {pool}", median(first for first, _ in found), "µs")


@contextmanager
def worker(server: PrivateRedis, pool: str, concurrency: int = 1) -> Iterator[None]:
    """Runs a worker of the app in ``running_tasks.py``."""
    command = ["celery", "-A", "tests.bench.targets.running_tasks", "worker", "-l", "ERROR", "--pool", pool]
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "--concurrency", str(concurrency)],
        env={**os.environ, BROKER: server.url, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
