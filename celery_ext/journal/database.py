"""The database of the journal: an engine for each process and URL, and its transactions."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, cached_property
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import Any, TypeVar
from urllib.parse import quote_plus
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from celery_ext.journal import schema
from celery_ext.journal.deadlines import CALL_S, deadline, in_words, left_s
from celery_ext.journal.errors import UnsupportedJournal
from kombu_delayq.errors import InvalidOptions

#: How long a statement waits for another process that writes to the same SQLite file, in s.
SQLITE_WAIT_S = 30
#: How long a connection to PostgreSQL may take, in s.
CONNECT_S = 5
#: How long a call tries to connect to a PostgreSQL that refuses connections, such as while it restarts, in s. kombu
#: calls twice.
AWAY_S = 2.0
#: Most connections of a process to PostgreSQL, which limits them for all its clients. Further callers wait.
CONNECTIONS = 5
#: Between two tries, in s.
POLL_S = 0.05
#: After which a dead network is noticed, in s: kept-alive connections are asked after a time without traffic, and sent
#: data has to be acknowledged.
IDLE_S, ACKNOWLEDGE_MS = 30, 20_000
#: Limits of PostgreSQL for each of our sessions, so that no publisher hangs for ever.
LIMITS = {"statement_timeout": "60s", "lock_timeout": "20s", "idle_in_transaction_session_timeout": "60s"}
#: Execution options: whether a transaction writes, and whether it has to survive a loss of power.
WRITES, DURABLE = "delayq_writes", "delayq_durable"

#: A setting of SQLite by whether a transaction has to survive a loss of power. After one without FULL, the latest
#: transactions may be gone, but none is torn.
SYNCHRONOUS = {True: "PRAGMA synchronous=FULL", False: "PRAGMA synchronous=NORMAL"}

#: Held while this process writes to SQLite. SQLite's own table of the locks of a process would go to a child that is
#: forked meanwhile, which nobody unlocks there: the child could never write. So a fork waits.
WRITING = Lock()
os.register_at_fork(before=WRITING.acquire, after_in_parent=WRITING.release, after_in_child=WRITING.release)

#: What people read instead of a password.
_HIDDEN = "***"

_GUIDE = (
    "use 'postgresql+psycopg://user@host/database' or 'sqlite:////absolute/path/journal.db'; several hosts are "
    "'postgresql+psycopg://user@/database?host=one:5432&host=two:5432'"
)


def connect(engine: Engine) -> Connection:
    """Connects. Waits a moment for a PostgreSQL that is away, as kombu does not wait before it calls again."""
    until = monotonic() + left_s(AWAY_S)
    while True:
        try:
            return engine.connect()
        except OperationalError:
            if monotonic() > until:
                raise
            sleep(POLL_S)


def shown(url: URL) -> str:
    """Returns a URL for people to read: without its password, also where that is a parameter."""
    query = {name: _HIDDEN if "password" in name.lower() else value for name, value in url.query.items()}
    text = url.set(query=query).render_as_string(hide_password=True)
    return text.replace(quote_plus(_HIDDEN), _HIDDEN)


def sqlite_wait() -> str:
    """Returns the statement that says how long SQLite waits for another process that writes."""
    return f"PRAGMA busy_timeout={round(left_s(SQLITE_WAIT_S) * 1000)}"


def parse_url(url: str) -> URL:
    """Returns a URL with the driver that it is used with.

    Raises:
        InvalidOptions: The journal cannot be there. The error has no password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # it has the URL in it, and with it the password
        raise InvalidOptions(f"journal_url is not a URL of a database; {_GUIDE}") from None
    if "@" in f"{parsed.host} {'' if parsed.drivername.startswith('sqlite') else parsed.database}":
        # A password that is cut at its first @: what follows would be shown, as host or as database.
        raise InvalidOptions(f"journal_url has an @ within user or password: write it as %40, and / as %2F; {_GUIDE}")
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InvalidOptions(
            f"journal_url={shown(parsed)!r}: the journal does not know {parsed.drivername!r}; {_GUIDE}"
        )
    if parsed.database in (None, "", ":memory:") or "mode" in parsed.query:
        raise InvalidOptions(
            f"journal_url={shown(parsed)!r}: each process would have a database of its own in its memory; {_GUIDE}"
        )
    folder = Path(str(parsed.database)).absolute().parent
    if not folder.is_dir():
        raise InvalidOptions(f"journal_url={shown(parsed)!r}: there is no directory {str(folder)!r}")
    return parsed


def engine_of(url: URL) -> Engine:
    """Returns the engine of a URL. A process that was forked gets its own."""
    return _engine(url, os.getpid())


@cache  # the engine of a parent stays here unused: if it went, its connections would be closed under the parent
def _engine(url: URL, _pid: int) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": SQLITE_WAIT_S}, hide_parameters=True)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    engine = create_engine(
        url,
        connect_args=_postgres_options(url),
        pool_pre_ping=True,
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=CALL_S,
        pool_use_lifo=True,
        hide_parameters=True,  # messages are not for logs
    )
    event.listen(engine, "do_connect", _connect_postgres)
    return engine


def _postgres_options(url: URL) -> dict[str, Any]:
    limits = " ".join(f"-c {name}={limit}" for name, limit in LIMITS.items())
    given = url.query.get("options", "")
    ours: dict[str, Any] = {
        "connect_timeout": CONNECT_S,
        "keepalives_idle": IDLE_S,
        "tcp_user_timeout": ACKNOWLEDGE_MS,
        "application_name": "delayq",
    }
    kept = {name: value for name, value in ours.items() if name not in url.query}
    return kept | {"options": f"{limits} {given if isinstance(given, str) else ' '.join(given)}".strip()}


def _connect_postgres(_dialect: Any, _record: Any, _args: Any, options: dict[str, Any]) -> Any:
    from celery_ext.journal import postgres  # it needs psycopg, which a journal in SQLite does not

    return postgres.connect(options)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # SQLAlchemy's ``begin`` below begins transactions, not the driver
    connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get(WRITES):
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(SYNCHRONOUS[bool(options.get(DURABLE))])
    connection.exec_driver_sql(sqlite_wait())
    # A transaction that reads first and then writes would fail when another process has written meanwhile.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


#: Number of the lock in PostgreSQL that processes take which make the tables: "delayq" in ASCII.
LOCK = 0x64656C617971

_facts = schema.facts


def prepare(engine: Engine) -> None:
    """Makes the tables unless they are there. Any number of processes may call this at once.

    A user that may not create tables can use those that somebody else has made.

    Raises:
        UnsupportedJournal: The tables are of another version.
    """
    with connect(engine) as connection:
        if _version(connection) == schema.VERSION:
            return
    with _alone(engine), engine.execution_options(**{WRITES: True, DURABLE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
        if _version(connection) is None:
            schema.metadata.create_all(connection)
            given = {"id": uuid4().hex, "guard": uuid4().hex, "version": schema.VERSION, "epoch": 1, "token": 0}
            totals = {"heartbeat": 0, "promoted": 0, "restored": 0, "written": "0 0", "missing_ms": 0, "leader": "[]"}
            rows = [{"name": name, "value": str(value)} for name, value in {**given, **totals}.items()]
            connection.execute(insert(_facts), rows)


def _alone(engine: Engine) -> AbstractContextManager[Any]:
    """Keeps forks, and with SQLite other threads, away while the process writes."""
    return WRITING if engine.dialect.name == "sqlite" else nullcontext()


def _version(connection: Connection) -> int | None:
    """Returns the version of the tables, None without any."""
    if not inspect(connection).has_table(_facts.name):
        return None
    found = connection.scalar(select(_facts.c.value).where(_facts.c.name == "version"))
    if found is None:
        return None
    if int(found) != schema.VERSION:
        raise UnsupportedJournal(
            f"the tables of the journal have version {found}, and this release of kombu-delayq knows version "
            f"{schema.VERSION} alone: use the release that made them, or another database"
        )
    return int(found)


T = TypeVar("T")

#: How often a transaction is tried that PostgreSQL undoes because of others.
ATTEMPTS = 5
#: SQLSTATE of a transaction that was undone because of others: serialization_failure, deadlock_detected.
_UNDONE = ("40001", "40P01")


class Database:
    """The database at a URL. Any thread may use it, also after a fork.

    Args:
        url: The URL, as SQLAlchemy reads it.

    Attributes:
        limit_s: How long a call waits for PostgreSQL, s.
    """

    def __init__(self, url: str) -> None:
        self._given = url
        self.limit_s = CALL_S
        self._prepared: int | None = None  # the process that has looked at the tables

    @cached_property
    def _url(self) -> URL:
        return parse_url(self._given)

    @property
    def url(self) -> str:
        """The URL without its password."""
        return shown(self._url)

    @property
    def engine(self) -> Engine:
        """The engine of this process, with the tables made.

        Raises:
            InvalidOptions: The URL is not one of a journal.
            UnsupportedJournal: The tables are of a later release.
            DatabaseUnavailable: The database does not answer.
            JournalRefused: The database refuses to make the tables.
        """
        engine = engine_of(self._url)
        if self._prepared != os.getpid():
            with self._limited(), in_words():
                prepare(engine)
            self._prepared = os.getpid()
        return engine

    def _limited(self) -> AbstractContextManager[None]:
        return deadline(SQLITE_WAIT_S if self._url.get_backend_name() == "sqlite" else self.limit_s)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for statements that only read. Each sees what is committed when it begins."""
        engine = self.engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._limited(), in_words(), connect(engine) as connection:
            yield connection

    def read(self, work: Callable[[Connection], T]) -> T:
        """Returns what some work reads. Each of its statements sees what is committed when it begins."""
        with self.reading() as connection:
            return work(connection)

    def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Does some work in a transaction. Repeats it where PostgreSQL undoes it because of others.

        Args:
            work: Is given the connection; may run more than once.
            durable: Whether SQLite waits for the disk. PostgreSQL always does, as it is configured.

        Returns:
            What ``work`` returned, after the commit.
        """
        engine = self.engine.execution_options(**{WRITES: True, DURABLE: durable})
        with self._limited(), in_words():
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    with _alone(engine), connect(engine) as connection, connection.begin():
                        return work(connection)
                except DBAPIError as error:
                    if attempt == ATTEMPTS or getattr(error.orig, "sqlstate", None) not in _UNDONE:
                        raise
        raise AssertionError("the last attempt returns or raises")
