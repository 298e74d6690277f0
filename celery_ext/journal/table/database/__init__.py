"""Transactions in the journal's database: tables made when first needed, and those repeated that have done nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from threading import Lock
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError

from celery_ext.journal.table.database import versions
from celery_ext.journal.table.database.away import CALL_S, PATIENT_S, DatabaseAway, asking, left_s, within
from celery_ext.journal.table.database.engines import (
    DURABLE,
    SQLITE_WAIT_S,
    WRITES,
    connect,
    engine_of,
    parse_url,
    shown,
)

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
            DatabaseAway: The database does not answer.
            sqlalchemy.exc.SQLAlchemyError: The database refuses to make the tables.
        """
        engine = engine_of(self._url)
        if self._prepared != os.getpid():
            with self._limited(), self._alone(), asking():
                if self._prepared != os.getpid():
                    versions.prepare(engine)
                    self._prepared = os.getpid()
        return engine

    def _limited(self) -> AbstractContextManager[None]:
        return within(SQLITE_WAIT_S if self._url.get_backend_name() == "sqlite" else self.limit_s)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=left_s(PATIENT_S)):
            raise DatabaseAway(None, None, TimeoutError("another thread waits for it"))
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
        with self._limited(), asking(), connect(engine) as connection:
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
                    with asking(), connect(engine) as connection, connection.begin() as transaction:
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
