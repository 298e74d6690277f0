"""Errors of the database, in words that show no message and no password."""

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

#: What an operation of the journal raises when its database is away, or refuses something.
DATABASE_ERRORS: tuple[type[Exception], ...] = (SQLAlchemyError,)


def error_in_words(error: BaseException) -> str:
    """Returns an error of the database as one line: what its driver said, without the statement and its values."""
    said = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return lines[0] if lines else type(said).__name__
