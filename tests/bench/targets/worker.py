"""A real ``celery worker`` process of the app."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.targets.app import BROKER, OPTIONS, OURS, QUEUES, TRANSPORT, make_app
from tests.support.conditions import until


@contextmanager
def running(broker_url: str, form: str = "hash", transport: str = OURS) -> Iterator[int]:
    """Runs a worker with Celery's defaults (prefork, a child a core). Yields its process id when it works."""
    with started(broker_url, transport, {"backup": form}) as pid:
        answers(broker_url)
        yield pid


@contextmanager
def started(
    broker_url: str,
    transport: str,
    transport_options: Mapping[str, Any],
    *options: str,
    queues: Sequence[str] = (),
    journal: Path | None = None,
    python: str = sys.executable,
) -> Iterator[int]:
    """Runs a worker. Yields its process id when the process has been started.

    Args:
        broker_url: A Redis database.
        transport: ``broker_transport``; empty for stock Celery.
        transport_options: ``broker_transport_options``.
        *options: Further options of ``celery worker``.
        queues: The queues that it consumes; by default Celery's own.
        journal: File in which ``bench.begin`` writes, if it is called.
        python: The interpreter.
    """
    env = {BROKER: broker_url, TRANSPORT: transport, OPTIONS: json.dumps(transport_options), "PYTHONWARNINGS": "ignore"}
    if queues:
        env[QUEUES] = ",".join(queues)
    if journal is not None:
        env["BENCH_JOURNAL"] = str(journal)
    process = subprocess.Popen(
        [python, "-m", "celery", "-A", "tests.bench.targets.app", "worker", "-l", "ERROR", *options],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def answers(broker_url: str, transport: str = "") -> None:
    """Returns when a worker answers an app with this transport."""
    until(lambda: make_app(broker_url, transport).control.ping(timeout=0.5), 60, "the worker answers")
