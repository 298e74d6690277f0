"""A private PostgreSQL, with Debian's defaults."""

import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from celery_ext.demo.private_redis import free_port
from tests.bench.daemon import Daemon

#: Where Debian keeps the programs of each version.
DEBIAN = Path("/usr/lib/postgresql")
#: The database of the contender, and the database for our own queries, which are so not counted.
DATABASE, OTHER = "bench", "postgres"
#: User that runs it if this process is root's, and its superuser.
USER = "postgres"


class PostgresServer:
    """A cluster with a database.

    Args:
        schema: Returns the statements that make the contender's tables.
    """

    def __init__(self, schema: Callable[[], str]) -> None:
        self._schema = schema
        self._daemon = Daemon("postgres", USER, signal.SIGQUIT)
        self._port = free_port()
        self._client: psycopg.Connection[Any] | None = None

    @property
    def url(self) -> str:
        """Its address over TCP."""
        return f"postgresql://{USER}@127.0.0.1:{self._port}/{DATABASE}"

    def start(self) -> None:
        """Makes a cluster and starts it; all its settings are defaults save where it listens."""
        home, programs = self._daemon.directory, _programs()
        assert programs is not None
        data = str(home / "data")
        self._daemon.run(
            [
                str(programs / "initdb"),
                *("--pgdata", data, "--username", USER),
                *("--auth", "trust", "--encoding", "UTF8", "--locale", "C.UTF-8"),
            ]
        )
        listen = ("-c", "listen_addresses=127.0.0.1", "-p", str(self._port), "-k", str(home))
        self._daemon.start([str(programs / "postgres"), "-D", data, *listen], self._connect)
        self._value(f"CREATE DATABASE {DATABASE}")
        with psycopg.connect(self.url) as client:
            client.execute(self._schema().encode())

    def close(self) -> None:
        """Ends it."""
        if self._client is not None:
            self._client.close()
        self._daemon.close()

    def kept_bytes(self) -> int:
        """Returns the size of the database's files, tables and indexes, after a checkpoint, without the log."""
        self._value("CHECKPOINT")
        return int(self._value("SELECT pg_database_size(%s)", DATABASE))

    def cpu_s(self) -> float:
        """Returns the CPU time of all its processes, and of those of connections that have ended."""
        return self._daemon.cpu_s()

    def commands(self) -> int:
        """Returns the transactions of the database, autovacuum's too.

        A session reports those that follow another within a second up to 10 s later.
        """
        return int(self._value("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s", DATABASE))

    def reads(self) -> int | None:
        """Returns None: PostgreSQL does not count reads."""
        return None

    def connections(self) -> int:
        """Returns how many clients are connected to the database."""
        counted = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        return int(self._value(counted, DATABASE))

    def watch(self) -> None:
        """Does nothing, because a transaction does not keep others waiting."""

    def longest_ms(self) -> float | None:
        """Returns None, for the same reason."""
        return None

    def _connect(self) -> None:
        """Connects over the socket file. A port could belong to another server, this file cannot."""
        try:
            self._client = psycopg.connect(
                host=str(self._daemon.directory), port=self._port, user=USER, dbname=OTHER, autocommit=True
            )
        except psycopg.OperationalError as error:
            raise ConnectionError(str(error)) from None

    def _value(self, query: str, *arguments: str) -> Any:
        """Runs a statement. Returns the only value of its result, if it has one."""
        assert self._client is not None
        cursor = self._client.execute(query, arguments or None)
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


def postgres_version() -> str:
    """Returns the version of the server that is installed."""
    programs = _programs()
    assert programs is not None
    said = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


def no_postgres() -> str | None:
    """Returns None if PostgreSQL is installed, else a line that says so."""
    return None if _programs() else "PostgreSQL is not installed (Debian: apt install postgresql)"


def _programs() -> Path | None:
    """Returns the directory of the programs of the newest PostgreSQL, if there is one."""
    found = [program.parent for program in DEBIAN.glob("*/bin/initdb") if (program.parent / "postgres").exists()]
    if found:
        return max(found, key=lambda directory: [int(part) for part in re.findall(r"\d+", directory.parent.name)])
    config = shutil.which("pg_config")
    if config is None:
        return None
    told = Path(subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False).stdout.strip())
    return told if (told / "initdb").exists() and (told / "postgres").exists() else None
