"""A worker process of the demo."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import click

from celery_ext.demo.journal import Journal
from celery_ext.demo.private_redis import PrivateRedis

#: How long a worker may take to end, in s.
STOP_S = 5.0


class DemoWorker:
    """A ``celery worker`` of the demo's app, in a process group of its own.

    Args:
        name: Node name before the ``@``.
        server: The broker. The worker's log is a file in the server's directory.
        queues: What it consumes.
    """

    def __init__(self, name: str, server: PrivateRedis, queues: Sequence[str] = ("celery",)) -> None:
        self.name = name
        self._log = server.directory / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "celery", "-A", "celery_ext.demo.app", "worker"),
                    *("--hostname", f"{name}@%h", "--concurrency", "1", "--loglevel", "INFO"),
                    *("--queues", ",".join(queues), "--without-mingle", "--without-gossip"),
                ],
                env={
                    **os.environ,
                    "DELAYQ_DEMO_BROKER": server.url,
                    "DELAYQ_DEMO_JOURNAL": server.url_of(Journal.DB),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        return self._process.pid

    def is_ready(self) -> bool:
        """Whether the worker consumes. If the worker has ended instead, the demo ends with its log."""
        log = self._log.read_text(errors="replace")
        if self._process.poll() is not None:
            raise click.ClickException(f"worker {self.name} ended:\n{log[-2000:]}")
        return " ready." in log

    def kill(self) -> None:
        """Sends SIGKILL to the worker and its pool."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
