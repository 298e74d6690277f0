"""How long calls wait for the database, and its errors, as kombu and Celery know errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from sqlalchemy.exc import DBAPIError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from kombu_delayq.errors import JournalUnavailable

#: What an operation of the journal raises when its database is away, or refuses something.
DATABASE_ERRORS: tuple[type[Exception], ...] = (SQLAlchemyError, JournalUnavailable)


def error_in_words(error: BaseException) -> str:
    """Returns an error of the database as one line: what its driver said, without the statement and its values."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0] if lines else type(said).__name__


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


class DatabaseUnavailable(OperationalError, ConnectionError):
    """The journal's database does not answer, or cannot do now what it is asked, such as while it restarts.

    It is a ``ConnectionError``, too. So kombu takes it for an error of the broker: ``apply_async`` tries again as its
    ``retry_policy`` says, and then raises ``kombu.exceptions.OperationalError``.
    """

    def __str__(self) -> str:
        said = next(iter(str(self.orig).strip().splitlines()), type(self.orig).__name__)
        return f"the journal's database: {said}"


#: SQLSTATE of a PostgreSQL that writes nothing now, such as a standby: read_only_sql_transaction.
_READ_ONLY = "25006"


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Raises ``DatabaseUnavailable`` in place of SQLAlchemy's error."""
    try:
        yield
    except DatabaseUnavailable:
        raise
    except NoConnectionFree as error:  # each connection of the pool waits for an answer
        raise DatabaseUnavailable(None, None, error, hide_parameters=True) from error
    except (OperationalError, InternalError) as error:
        if isinstance(error, InternalError) and getattr(error.orig, "sqlstate", None) != _READ_ONLY:
            raise
        raise DatabaseUnavailable(
            error.statement,
            error.params,
            error.orig or error,
            hide_parameters=True,
            connection_invalidated=error.connection_invalidated,
        ) from error
