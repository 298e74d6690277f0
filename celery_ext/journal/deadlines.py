"""How long calls wait for the database, and its errors, as kombu and Celery know errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from celery_ext.journal.errors import DatabaseUnavailable, JournalRefused

#: How long a call waits for PostgreSQL, in s: publishers, consumers, pages and metrics need an answer or an error soon.
CALL_S = 5.0
#: How long a call waits that may take its time: longer than PostgreSQL lets any statement run, in s.
LONG_CALL_S = 70.0

#: Until when calls wait, by ``monotonic``; None without a limit.
_until: ContextVar[float | None] = ContextVar("delayq_until", default=None)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limits how long the calls of a block wait for the database, all together.

    Args:
        seconds: The limit, s. An outer limit that ends earlier holds as well.
    """
    outer, until = _until.get(), monotonic() + seconds
    _until.set(until if outer is None else min(outer, until))
    try:
        yield
    finally:
        _until.set(outer)


def left_s(most_s: float) -> float:
    """Returns how long a call may wait now, at most ``most_s``; 0 if the limit has passed."""
    until = _until.get()
    return most_s if until is None else max(min(until - monotonic(), most_s), 0.0)


#: SQLSTATE of a PostgreSQL that writes nothing now, such as a standby: read_only_sql_transaction.
_READ_ONLY = "25006"


@contextmanager
def in_words() -> Iterator[None]:
    """Raises errors of the journal in place of SQLAlchemy's."""
    try:
        yield
    except SQLAlchemyError as error:
        raise (DatabaseUnavailable if _is_away(error) else JournalRefused)(_said(error)) from error


def _is_away(error: SQLAlchemyError) -> bool:
    if isinstance(error, InternalError):
        return getattr(error.orig, "sqlstate", None) == _READ_ONLY
    return isinstance(error, (OperationalError, InterfaceError, NoConnectionFree))  # the last: each waits for an answer


def _said(error: SQLAlchemyError) -> str:
    """Returns what the driver said in one line, without the statement and its values."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0] if lines else type(said).__name__
