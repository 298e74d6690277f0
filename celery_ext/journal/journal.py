"""The journal of one broker: what its tables can do. Errors of the database are ``JournalRefused``."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Engine, func, select

from celery_ext.journal import schema
from celery_ext.journal.counts import Counting
from celery_ext.journal.database import Database
from celery_ext.journal.deadlines import LONG_CALL_S
from celery_ext.journal.epochs import Epochs
from celery_ext.journal.facts import Facts, facts_in
from celery_ext.journal.messages import Messages
from celery_ext.journal.schema import is_postgres


class Totals(NamedTuple):
    """What a journal has counted.

    Attributes:
        heartbeat: Number of the latest heartbeat, 0 if nobody has promoted yet.
        promoted: How many rows Redis was given so far, of those that only the journal had.
        restored: How many rows wait anew after a loss, all in all.
        size_bytes: Size of the tables and their indexes on disk.
    """

    heartbeat: int
    promoted: int
    restored: int
    size_bytes: int


class Journal(Messages, Counting, Facts, Epochs):
    """Adds, finds, changes, counts and promotes messages in the journal.

    Nothing is opened before the first call. Any thread may use it, also after a fork.

    Args:
        url: The database, as a URL of SQLAlchemy.
    """

    def __init__(self, url: str) -> None:
        self._database = Database(url)

    @property
    def engine(self) -> Engine:
        """The database, with its tables made: the engine of this process."""
        return self._database.engine

    @property
    def url(self) -> str:
        """The URL without its password."""
        return self._database.url

    def allow_long_calls(self) -> None:
        """Lets calls wait for PostgreSQL as long as it works: for a promoter, and for what an operator waits for."""
        self._database.limit_s = LONG_CALL_S

    def has_lost(self) -> bool:
        """Whether Redis has lost messages that are not restored."""
        return bool(self.unrestored()) or self.missing_ms() > 0

    def totals(self) -> Totals:
        """Returns what the journal has counted."""
        with self._database.reading() as connection:
            facts, size = facts_in(connection), _size(connection)
        return Totals(int(facts["heartbeat"]), int(facts["promoted"]), int(facts["restored"]), size)


def _size(connection: Connection) -> int:
    if is_postgres(connection):
        sizes = [func.pg_total_relation_size(name) for name in schema.metadata.tables]
        return int(sum(connection.execute(select(*sizes)).one()))
    return sum(file.stat().st_size for file in _files(str(connection.engine.url.database)) if file.exists())


def _files(path: str) -> Iterator[Path]:
    return (Path(path + ending) for ending in ("", "-wal"))
