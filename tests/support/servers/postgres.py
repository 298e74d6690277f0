"""A private PostgreSQL for tests, in a temporary directory."""

import ctypes
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

import psycopg

from tests.support.conditions import until
from tests.support.missing import missing

#: Where Debian keeps the programs of each version.
DEBIAN = Path("/usr/lib/postgresql")
#: Superuser and database of the server.
USER = DATABASE = "postgres"
#: How long a server may take to start or to end, in s.
START_S = 60.0
#: Its data need not outlive it.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "jit": "off",
}
#: In Linux: a process asks for a signal at its parent's end.
_PR_SET_PDEATHSIG = 1


class PrivatePostgres:
    """A PostgreSQL server that listens on a socket file only.

    PostgreSQL refuses to run as root; there it runs as the user ``postgres``, or ``nobody``. It ends with the process
    that has started it, however that ends.

    Args:
        **settings: Further settings, as in ``postgresql.conf``.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = SETTINGS | settings
        self.directory = Path(tempfile.mkdtemp(prefix="delayq-pg-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            found = _unprivileged()
            os.chown(self.directory, found.pw_uid, found.pw_gid)
            self._as = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas = count()

    @property
    def url(self) -> str:
        """URL of the database, as SQLAlchemy reads it."""
        return f"postgresql+psycopg://{USER}@/{DATABASE}?host={self.directory}"

    def make_schema(self) -> str:
        """Makes a schema. Returns the URL of a journal in it."""
        name = f"journal_{next(self._schemas)}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def execute(self, statement: str) -> list[Any]:
        """Runs a statement as the superuser. Returns its rows."""
        with psycopg.connect(host=str(self.directory), user=USER, dbname=DATABASE, autocommit=True) as client:
            cursor = client.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> Self:
        """Starts the server, with the data it had, and returns when it answers."""
        programs = _programs()
        assert programs is not None
        data = self.directory / "data"
        if not data.exists():
            self._run([str(programs / "initdb"), "-D", str(data), "-U", USER, "--auth=trust", "--no-sync"])
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(programs / "postgres"), "-D", str(data), "-k", str(self.directory), *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                preexec_fn=_end_with_parent,
                **self._as,
            )
        self._await_answer(self._process)
        return self

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Ends the server and its connections: at once and tidily, or with SIGQUIT as if it had crashed."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_S)

    def hang(self) -> None:
        """Lets the server and its connections stand still: the system accepts connections, and nobody answers."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets a server go on that hangs."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        """Sends a signal to the server, and to its connections, which it cannot have more of once it stands still."""
        assert self._process is not None
        pid = self._process.pid
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        for process in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            with suppress(ProcessLookupError):  # a child that has just ended
                os.kill(process, number)

    def close(self) -> None:
        """Ends the server and removes its directory."""
        if self._process is not None:
            self.go_on()
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, command: list[str]) -> None:
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command, cwd=self.directory, env=env, capture_output=True, text=True, check=False, **self._as
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = monotonic() + START_S
        while True:
            try:
                self.execute("SELECT 1")
                return
            except psycopg.OperationalError:
                if process.poll() is not None or monotonic() > deadline:
                    log = (self.directory / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start:\n{log[-2000:]}") from None
                sleep(0.02)


def need_postgres() -> None:
    """Skips the test where PostgreSQL is not installed; in CI the test fails."""
    if _programs() is None:
        missing("PostgreSQL is not installed (Debian: apt install --no-install-recommends postgresql)")


def _programs() -> Path | None:
    """Returns the directory of the programs of the newest PostgreSQL, if there is one."""
    found = [program.parent for program in DEBIAN.glob("*/bin/initdb") if (program.parent / "postgres").exists()]
    if found:
        return max(found, key=lambda directory: [int(part) for part in re.findall(r"\d+", directory.parent.name)])
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
