"""Transactions in the journal's database: tables made when first needed, and those repeated that have done nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from threading import Lock
from typing import TypeVar
from uuid import uuid4

from sqlalchemy import URL, Connection, Engine, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from celery_ext.journal import schema
from celery_ext.journal.deadlines import (
    CALL_S,
    LONG_CALL_S,
    DatabaseUnavailable,
    as_unavailable,
    deadline,
    left_s,
)
from celery_ext.journal.engines import DURABLE, SQLITE_WAIT_S, WRITES, connect, engine_of, parse_url, shown
from kombu_delayq.errors import UnsupportedJournal

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
    with engine.execution_options(**{WRITES: True, DURABLE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
        if _version(connection) is None:
            schema.metadata.create_all(connection)
            given = {"id": uuid4().hex, "guard": uuid4().hex, "version": schema.VERSION, "epoch": 1}
            totals = {"heartbeat": 0, "promoted": 0, "restored": 0, "written": "0 0", "missing_ms": 0}
            rows = [{"name": name, "value": str(value)} for name, value in {**given, **totals}.items()]
            connection.execute(insert(_facts), rows)


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
        self._lock = Lock()

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
            sqlalchemy.exc.SQLAlchemyError: The database refuses to make the tables.
        """
        engine = engine_of(self._url)
        if self._prepared != os.getpid():
            with self._limited(), self._alone(), as_unavailable():
                if self._prepared != os.getpid():
                    prepare(engine)
                    self._prepared = os.getpid()
        return engine

    def _limited(self) -> AbstractContextManager[None]:
        return deadline(SQLITE_WAIT_S if self._url.get_backend_name() == "sqlite" else self.limit_s)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=left_s(LONG_CALL_S)):
            raise DatabaseUnavailable(None, None, TimeoutError("another thread waits for it"))
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection for statements that only read. Each sees what is committed when it begins."""
        engine = self.engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._limited(), as_unavailable(), connect(engine) as connection:
            yield connection

    def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """Does some work in a transaction. Repeats it where the database has surely done nothing of it.

        Args:
            work: Is given the connection; may run more than once.
            durable: Whether SQLite waits for the disk. PostgreSQL always does, as it is configured.

        Returns:
            What ``work`` returned, after the commit.
        """
        engine = self.engine.execution_options(**{WRITES: True, DURABLE: durable})
        with self._limited():
            for attempt in range(1, ATTEMPTS + 1):
                is_committing = False
                try:
                    with as_unavailable(), connect(engine) as connection, connection.begin() as transaction:
                        result = work(connection)
                        is_committing = True
                        transaction.commit()
                        return result
                except DBAPIError as error:
                    was_cut = error.connection_invalidated and not isinstance(error.orig, TimeoutError)
                    again = _was_undone(error) or (was_cut and not is_committing and attempt == 1)
                    if attempt == ATTEMPTS or not again:
                        raise
        raise AssertionError("the last attempt returns or raises")


def _was_undone(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) in _UNDONE
