"""The messages of the journal: they come, are found, change, and are promoted."""

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from celery_ext.journal import schema
from celery_ext.journal.counts import HourKey, counting, epochs_given
from celery_ext.journal.database import SYNCHRONOUS, WRITING, Database, sqlite_wait
from celery_ext.journal.deadlines import in_words
from celery_ext.journal.facts import lock_epoch, raise_fact
from celery_ext.journal.promotion import Row
from celery_ext.journal.rows import (
    Addition,
    between,
    delete_where,
    fitting,
    in_state,
    insert_new,
    of_epoch,
    renumber,
    rewrite,
    rows_where,
    set_epoch,
    some_of,
    values_of,
)
from celery_ext.journal.schema import WAITING, among, keyed_by, storable
from kombu_delayq.message import key_of

_messages = schema.messages
_facts = schema.facts
_DIALECT = sqlite.dialect(paramstyle="qmark")


def add_to_sqlite(engine: Engine, additions: Sequence[Addition], *, offered: bool, epoch: int) -> list[int | None]:
    """Adds messages in one transaction; arguments and result are those of ``Messages.add``."""
    insert, columns = _insert()
    made: list[int | None] = []
    changes = Counter[HourKey]()
    with WRITING, _writing(engine, durable=not offered) as run:
        state = max(int(run(*_epoch()).fetchone()[0]), epoch) if offered else WAITING
        for one in additions:
            values = {**one._asdict(), "state": state, "digest": one.digest}
            values["queue"], values["id"] = storable(one.queue), storable(one.id)
            found = run(insert, [values[name] for name in columns]).fetchone()
            made.append(found and found[0])
            if found:
                changes[HourKey.of(values["queue"], state, one.due_ms)] += 1
        for key, number in changes.items():
            count, names = _count()
            values = {**key._asdict(), "rows": number}
            run(count, [values[name] for name in names])
    return made


@contextmanager
def _writing(engine: Engine, *, durable: bool) -> Iterator[Any]:
    """Yields a function that runs statements of a transaction. Errors are those of SQLAlchemy."""
    pooled = engine.raw_connection()
    try:
        run = pooled.cursor().execute
        run(SYNCHRONOUS[durable])
        run(sqlite_wait())
        run("BEGIN IMMEDIATE")
        try:
            yield run
            run("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite has rolled it back itself, as it does when the disk is full
                run("ROLLBACK")
            raise
    except sqlite3.Error as error:
        statement = "a message is added"
        raise DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=_DIALECT
        ) from error
    finally:
        pooled.close()


@cache
def _insert() -> tuple[str, list[str]]:
    names = [column.name for column in _messages.c if column.name != "seq"]
    statement = sqlite.insert(_messages).on_conflict_do_nothing().returning(_messages.c.seq)
    return _text(statement, names)


@cache
def _count() -> tuple[str, list[str]]:
    return _text(counting(sqlite.insert(schema.counts)), [column.name for column in schema.counts.c])


@cache
def _epoch() -> tuple[str, list[str]]:
    compiled = select(_facts.c.value).where(_facts.c.name == "epoch").compile(dialect=_DIALECT)
    return str(compiled), [compiled.params[name] for name in compiled.positiontup or []]


def _text(statement: Any, names: Sequence[str]) -> tuple[str, list[str]]:
    """Returns a statement as SQLite reads it, and the names of its parameters in their order."""
    compiled = statement.compile(dialect=_DIALECT, column_keys=names)
    return str(compiled), list(compiled.positiontup)


def _of_ids(connection: Connection, ids: Collection[str]) -> Any:
    """Returns the condition that a row has one of some ids, or an id of a task that has one of them as waiting key."""
    keys = frozenset(ids)
    keyed = [one for one in connection.scalars(keyed_by(connection, keys)) if key_of(one) in keys]
    return among(connection, _messages.c.id, [*keys, *keyed])


class Purged(NamedTuple):
    """What a call of ``purge`` has deleted; false if it was nothing.

    Attributes:
        waiting: Numbers of the rows that only the journal had.
        offered: How many rows of messages that Redis was given.
    """

    waiting: list[int]
    offered: int

    def __bool__(self) -> bool:
        return bool(self.waiting or self.offered)


class Messages:
    """Adds, finds, changes and promotes messages."""

    _database: Database

    # Messages come.

    def add(self, additions: Sequence[Addition], *, offered: bool = False, epoch: int = 0) -> list[int | None]:
        """Adds messages in one transaction. The same message again changes nothing.

        Args:
            additions: The messages.
            offered: Whether Redis is given them, too; then their state is the current epoch, else ``WAITING``.
            epoch: Least epoch then: the next one, where Redis has lost its data and nobody has ended the current one.

        Returns:
            For each message the number of its new row, or None if the journal has the message already.
        """
        if not additions:
            return []
        engine = self._database.engine
        if engine.dialect.name == "sqlite":
            with in_words():
                return add_to_sqlite(engine, additions, offered=offered, epoch=epoch)
        wanted = [(one.id, one.digest) for one in additions]

        def work(connection: Connection) -> list[int | None]:
            state = max(lock_epoch(connection), epoch) if offered else WAITING
            made = insert_new(connection, [values_of(one, state) for one in additions])
            return [made.pop(key, None) for key in wanted]  # of the same message twice, one row is made

        return self._database.write(work, durable=not offered)

    # Messages are found.

    def get(self, ids: Collection[str], state: int | None = WAITING) -> list[Row]:
        """Returns the rows of ids or waiting keys, the next due first. ``state`` None: of any state."""
        with self._database.reading() as connection:
            return rows_where(connection, [_of_ids(connection, ids), *in_state(state)])

    def rows(self, seqs: Collection[int], state: int | None = WAITING) -> list[Row]:
        """Returns rows by their numbers if they are in a state still, the next due first."""
        with self._database.reading() as connection:
            return rows_where(connection, [among(connection, _messages.c.seq, seqs), *in_state(state)])

    def browse(
        self,
        queue: str,
        after: tuple[float, int] | None = None,
        from_ms: float = -inf,
        to_ms: float = inf,
        count: int = 100,
    ) -> list[Row]:
        """Returns waiting rows of a queue in the order of their due times.

        Args:
            queue: Its name.
            after: Due time and number of the row after which to begin.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time that all rows are before.
            count: Most rows.
        """
        where = [_messages.c.queue == queue, schema.is_waiting, *between(from_ms, to_ms, after)]
        return self._database.read(lambda connection: rows_where(connection, where, count))

    # Messages are changed.

    def delete(self, ids: Collection[str], state: int | None = None) -> list[Row]:
        """Deletes the rows of ids or waiting keys, of any state or of one. Returns them, the next due first."""
        return self._database.write(
            lambda connection: delete_where(connection, _of_ids(connection, ids), *in_state(state))
        )

    def delete_rows(self, seqs: Collection[int], state: int | None = WAITING) -> list[Row]:
        """Deletes rows by their numbers if they are in a state still (None: any). Returns them, the next due first."""
        return self._database.write(
            lambda connection: delete_where(connection, among(connection, _messages.c.seq, seqs), *in_state(state))
        )

    def replace(self, changes: Sequence[tuple[int, Addition]]) -> list[int | None]:
        """Puts new messages into the place of rows that wait, all in one transaction. They have new numbers then.

        Args:
            changes: Number of each row, and the message that replaces it; each number once.

        Returns:
            The number of each new row; None where the row does not wait any more, and nothing has changed.
        """

        def work(connection: Connection) -> list[int | None]:
            of_seqs = among(connection, _messages.c.seq, [seq for seq, _ in changes])
            found = renumber(connection, of_seqs, schema.is_waiting)
            for seq, addition in changes:
                if seq in found:
                    rewrite(connection, found[seq], addition)
            return [found[seq].seq if seq in found else None for seq, _ in changes]

        return self._database.write(work)

    def follow(self, changes: Sequence[tuple[int, Addition]]) -> None:
        """Gives rows of messages that Redis has what these messages are now. The rows keep their numbers and states.

        Args:
            changes: Number of each row, and the message; each number once. Rows that wait, or are gone, are left out.
        """
        wanted = dict(changes)

        def work(connection: Connection) -> None:
            where = among(connection, _messages.c.seq, wanted), ~schema.is_waiting
            for row in rows_where(connection, where, lock=True):
                rewrite(connection, row, wanted[row.seq])

        self._database.write(work)

    def purge(self, queue: str, count: int = 5_000) -> Purged:
        """Deletes the rows of a queue, of any state, at most ``count`` of them."""

        def work(connection: Connection) -> Purged:
            of_queue = _messages.c.queue == queue
            waiting = some_of(schema.is_waiting, of_queue, count=count)
            gone = delete_where(connection, _messages.c.seq.in_(waiting), bodies=False)
            offered = 0
            given = [schema.is_missing, *map(of_epoch, epochs_given(connection))]
            for condition in given:
                left = count - len(gone) - offered
                some = some_of(condition, of_queue, count=left)
                offered += len(delete_where(connection, _messages.c.seq.in_(some), bodies=False)) if left else 0
            return Purged([row.seq for row in gone], offered)

        return self._database.write(work)

    # Messages are promoted.

    def promotable(self, before_ms: float, count: int, after: tuple[float, int] | None = None) -> list[Row]:
        """Returns waiting rows of all queues that are due before a time, in the order of their due times.

        They are at most ``count``, and fewer if their bodies are large. If there is a row, one comes.
        """
        order, due = (_messages.c.due_ms, _messages.c.seq), [schema.is_waiting, *between(-inf, before_ms, after)]
        with self._database.reading() as connection:
            fits = fitting(connection, order, due, count)
            return rows_where(connection, due, fits) if fits else []

    def mark(self, seqs: Collection[int], epoch: int | None = None) -> set[int]:
        """Notes that Redis was given rows. Returns the numbers of those that were waiting until now.

        Args:
            seqs: Numbers of the rows.
            epoch: The epoch in which Redis was given them. If it has ended, nothing changes; None: the current one.
        """

        def work(connection: Connection) -> set[int]:
            current = lock_epoch(connection)
            if epoch not in (None, current):
                return set()
            of_seqs = among(connection, _messages.c.seq, seqs)
            marked = set_epoch(connection, current, of_seqs, schema.is_waiting, were_waiting=True)
            raise_fact(connection, "promoted", len(marked))
            return marked

        return self._database.write(work, durable=False)
