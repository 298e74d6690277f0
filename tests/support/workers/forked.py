"""Processes that begin with all imports done: forked from a server that has imported Celery and this project once."""

import atexit
import multiprocessing
import os
import random
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: What every worker imports.
_IMPORTS = (
    *("celery.bin.celery", "celery.bin.worker", "celery.apps.worker", "celery.worker.consumer", "celery.worker.state"),
    *("celery.worker.components", "celery.worker.strategy", "celery.app.trace", "celery.events.state"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "celery.concurrency.solo", "celery.backends.redis"),
    *("kombu_delayq.transport", "celery_ext.worker.bootstrap", "celery_ext.cli.root", "tests.support.workers.forked"),
)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(_IMPORTS))


class Forked:
    """A process as ``subprocess.Popen`` has it, in a session of its own; it ends with this one.

    Args:
        module: The module that it runs, as ``python -m`` does.
        args: Its arguments.
        cwd: The directory in which it runs.
        env: All of its environment.
        log: The file to which it appends what it writes.
    """

    def __init__(self, module: str, args: Sequence[str], cwd: Path, env: Mapping[str, str], log: str) -> None:
        self._name = module
        self._process = _CONTEXT.Process(target=_run, args=(module, list(args), str(cwd), dict(env), log), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, less than 0 for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Returns the exit code; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end and returns the exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._name, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, if it runs."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(module: str, args: list[str], cwd: str, env: dict[str, str], log: str) -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing, Path(log).open("ab") as written:
        os.dup2(nothing.fileno(), 0)
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, cwd)
    sys.argv = [module, *args]
    random.seed()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
