"""The error of a database that does not answer, as kombu and Celery know errors of a broker."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import OperationalError


class DatabaseAway(OperationalError, ConnectionError):
    """The journal's database does not answer, or cannot do now what it is asked, such as while it restarts.

    It is a ``ConnectionError``, too. So kombu takes it for an error of the broker: ``apply_async`` tries again as its
    ``retry_policy`` says, and then raises ``kombu.exceptions.OperationalError``.
    """

    def __str__(self) -> str:
        said = next(iter(str(self.orig).strip().splitlines()), type(self.orig).__name__)
        return f"the journal's database: {said}"


@contextmanager
def asking() -> Iterator[None]:
    """Raises ``DatabaseAway`` in place of SQLAlchemy's error."""
    try:
        yield
    except DatabaseAway:
        raise
    except OperationalError as error:
        raise DatabaseAway(
            error.statement,
            error.params,
            error.orig or error,
            hide_parameters=True,
            connection_invalidated=error.connection_invalidated,
        ) from error
