"""The ``delayq`` command, in this process and in one of its own, also with a terminal."""

import inspect
import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeAlias

from click.testing import CliRunner, Result

from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis

BIN = Path(sys.executable).parent
# stdout and stderr apart, which newer versions of click always do.
_APART: Any = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}


#: Lists the lines of the audit that this process has logged, the latest first.
Audit: TypeAlias = Callable[[], list[dict[str, Any]]]


class Server(Protocol):
    """A broker of the tests: one server, or a cluster."""

    @property
    def url(self) -> str:
        """Broker URL."""


def run(server: Server, *args: str, stdin: str | bytes = "", code: int = 0) -> Result:
    """Runs a command in this process, which has no terminal, and checks its exit code."""
    result = CliRunner(**_APART).invoke(delayq, ["--broker", server.url, *args], input=stdin)
    assert result.exit_code == code, (args, result.stdout, result.stderr, result.exception)
    return result


def lines(server: Server, *args: str, stdin: str = "", code: int = 0) -> list[dict[str, Any]]:
    """Runs a command with ``--json``. Returns its lines, parsed."""
    return [json.loads(line) for line in run(server, *args, "--json", stdin=stdin, code=code).stdout.splitlines()]


class Terminal:
    """A process of which all or some standard streams are a terminal; ``script`` has all that it wrote there."""

    def __init__(self, args: list[str], columns: int = 0, **streams: Any) -> None:
        self._master, slave = pty.openpty()
        if columns:
            termios.tcsetwinsize(slave, (24, columns))
        self.script = ""
        try:
            streams = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}
            # COLUMNS is the width of another terminal; readline and pytest's workers set it.
            environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
            self.process = subprocess.Popen(args, start_new_session=True, env=environment, **streams)
        finally:
            os.close(slave)

    def type(self, text: str) -> None:
        """Types a line."""
        self.press(f"{text}\n")

    def press(self, keys: str) -> None:
        """Presses keys; a tab is among the control characters."""
        os.write(self._master, keys.encode())

    def read_until(self, text: str, timeout_s: float = 60.0) -> str:
        """Reads until the process has written a text. Returns all that it has written so far."""
        deadline = monotonic() + timeout_s
        while text not in self.script:
            assert self._read(deadline), f"{text!r} was not written:\n{self.script}"
        return self.script

    def wait(self, timeout_s: float = 120.0) -> int:
        """Reads to the end. Returns the exit code."""
        deadline = monotonic() + timeout_s
        while self._read(deadline):
            pass
        return self.process.wait(max(deadline - monotonic(), 1))

    def close(self) -> None:
        """Ends the process, and closes its streams."""
        with self.process:
            self.process.kill()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        if not select.select([self._master], [], [], max(deadline - monotonic(), 0))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the process has closed it
            return False
        self.script += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(server: PrivateRedis, *args: str, columns: int = 0, **streams: Any) -> Iterator[Terminal]:
    """Runs ``delayq`` in a terminal of some width; ``streams`` are the standard streams that are not the terminal."""
    process = Terminal([str(BIN / "delayq"), "--broker", server.url, *args], columns, **streams)
    try:
        yield process
    finally:
        process.close()


def start_transfer(url: str, *args: str) -> subprocess.Popen[str]:
    """Starts ``delayq transfer``, whose log can be read."""
    return subprocess.Popen([BIN / "delayq", "-b", url, *args, "transfer"], stderr=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Reads what a process logs until a text comes, and ends it as a supervisor does."""
    assert process.stderr
    try:
        assert any(text in line for line in process.stderr), f"{text!r} was not logged"
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
