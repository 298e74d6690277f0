"""A server's process in a temporary directory, as another user where root must not run it."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil

#: How long a server may take to start, and to end, in s.
START_S, END_S = 60.0, 10.0
#: As in ``/proc/net/tcp``.
ESTABLISHED = "01"


class Daemon:
    """A private server.

    Args:
        name: Part of its directory's name.
        user: User that runs it if this process is root's.
        end: Signal that ends it at once.
    """

    def __init__(self, name: str, user: str, end: signal.Signals) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"delayq-bench-{name}-"))
        self.log = self.directory / "log"
        self._end = end
        self._env = {**os.environ, "HOME": str(self.directory)}
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            found = pwd.getpwnam(user)
            os.chown(self.directory, found.pw_uid, found.pw_gid)
            self._as = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        self._processes: list[psutil.Popen] = []

    def settings(self, env: Mapping[str, str]) -> None:
        """Adds environment variables for all programs that are started from now on."""
        self._env |= env

    def run(self, command: Sequence[str]) -> str:
        """Runs a program of the server to its end. Returns what it writes.

        Raises:
            RuntimeError: It failed.
        """
        done = subprocess.run(
            command, cwd=self.directory, env=self._env, capture_output=True, text=True, check=False, **self._as
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def start(self, command: Sequence[str], ready: Callable[[], Any]) -> None:
        """Starts a process and returns when it is ready, that is, when ``ready`` raises no ``OSError``.

        Raises:
            RuntimeError: It ended, or is not ready in time.
        """
        with self.log.open("ab") as log:
            process = psutil.Popen(
                command,
                cwd=self.directory,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as,
            )
        self._processes.append(process)
        until = monotonic() + START_S
        while True:
            try:
                ready()
                return
            except OSError:
                if process.poll() is not None or monotonic() > until:
                    raise RuntimeError(f"{command[0]} did not start:\n{self._tail()}") from None
                sleep(0.05)

    def close(self) -> None:
        """Ends all processes, and what they have started, and removes the directory."""
        for process in reversed(self._processes):
            with suppress(psutil.NoSuchProcess):
                tree = process.children(recursive=True)
                process.send_signal(self._end)
                with suppress(psutil.TimeoutExpired):
                    process.wait(END_S)
                for left in (*tree, process):
                    with suppress(psutil.NoSuchProcess):
                        left.kill()
                process.wait(END_S)
        self._processes.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def cpu_s(self) -> float:
        """Returns the CPU time of all processes and those that they have started, also of those that have ended."""
        while True:
            # The time of a process that has ended counts with its parent.
            with suppress(psutil.NoSuchProcess):
                return sum(sum(process.cpu_times()[:4]) for process in self._tree())

    def file_bytes(self, part: str) -> int:
        """Returns how much of the disk the files below a part of the directory take."""
        blocks = 0
        for file in (self.directory / part).rglob("*"):
            with suppress(FileNotFoundError):
                blocks += file.stat().st_blocks
        return blocks * 512

    def _tree(self) -> list[psutil.Process]:
        """Returns the processes that run."""
        parents = [process for process in self._processes if process.is_running()]
        return [*parents, *(child for parent in parents for child in parent.children(recursive=True))]

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


def knock(port: int) -> None:
    """Raises OSError unless a port of this machine accepts connections."""
    socket.create_connection(("127.0.0.1", port), timeout=1).close()


def connected(port: int) -> int:
    """Returns how many clients are connected to a port of this machine.

    Source: proc(5), ``/proc/net/tcp``. Asking a process for its sockets takes much longer if it has hundreds.
    """
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(fields[1] == f"0100007F:{port:04X}" and fields[3] == ESTABLISHED for fields in sockets)
