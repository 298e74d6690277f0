"""A real ``celery worker`` process of the app."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.targets.app import BACKUP, BROKER, OURS, TRANSPORT, make_app
from tests.support.conditions import until


@contextmanager
def running(broker_url: str, form: str = "hash", transport: str = OURS) -> Iterator[int]:
    """Runs a worker with Celery's defaults (prefork, a child a core). Yields its process id when it works."""
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tests.bench.targets.app", "worker", "-l", "ERROR"],
        env={**os.environ, BROKER: broker_url, TRANSPORT: transport, BACKUP: form, "PYTHONWARNINGS": "ignore"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(lambda: make_app(broker_url).control.ping(timeout=0.5), 60, "the worker answers")
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
