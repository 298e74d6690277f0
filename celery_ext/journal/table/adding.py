"""Adds rows to SQLite by its driver alone: publishers wait for it, and SQLAlchemy would take six times as long."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from celery_ext.journal.table.database import schema
from celery_ext.journal.table.database.engines import SYNCHRONOUS, sqlite_wait
from celery_ext.journal.table.database.schema import storable
from celery_ext.journal.table.hours import HourKey, counting
from celery_ext.journal.table.rows import WAITING, Addition

_messages = schema.messages
_facts = schema.facts
_DIALECT = sqlite.dialect(paramstyle="qmark")


def add_to_sqlite(engine: Engine, additions: Sequence[Addition], *, offered: bool, epoch: int) -> list[int | None]:
    """Adds messages in one transaction; arguments and result are those of ``Messages.add``."""
    insert, columns = _insert()
    made: list[int | None] = []
    changes = Counter[HourKey]()
    with _writing(engine, durable=not offered) as run:
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
