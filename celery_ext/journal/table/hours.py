"""Keeps the counts of rows by the hour, in the transactions in which rows come and leave."""

from collections import Counter
from random import random
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, union_all
from sqlalchemy import literal_column as raw

from celery_ext.journal.table.database import schema
from celery_ext.journal.table.database.statements import among, is_postgres, upsert
from celery_ext.journal.table.rows import WAITING

HOUR_MS = 3_600_000
#: In PostgreSQL one transaction in so many adds up the changes of the others.
FOLD_EVERY = 100
#: Most changes that are added up at once.
FOLDED = 5_000

#: Hours beyond these are counted with them: a due time may be any number.
_LAST_HOUR = 2**60
#: Number of the lock in PostgreSQL of whom adds up: "count" in ASCII.
_FOLD_LOCK = 0x636F756E74
_COLUMNS = ("queue", "offered", "hour", "rows")

_counts = schema.counts
_changes = schema.count_changes


class HourKey(NamedTuple):
    """Under what a row is counted.

    Attributes:
        queue: Name of its queue.
        offered: Whether Redis was given it.
        hour: The hour in which it is due, counted since the epoch.
    """

    queue: str
    offered: bool
    hour: int

    @classmethod
    def of(cls, queue: str, state: int, due_ms: float) -> "HourKey":
        """Returns the key of a row."""
        return cls(queue, state != WAITING, int(max(-_LAST_HOUR, min(_LAST_HOUR, due_ms // HOUR_MS))))


def note(connection: Connection, changes: Counter[HourKey]) -> None:
    """Counts rows that came or left, in the transaction in which they do."""
    rows = [{**key._asdict(), "rows": number} for key, number in sorted(changes.items()) if number]
    if not rows:
        return
    if not is_postgres(connection):
        _add_up(connection, rows)
        return
    connection.execute(insert(_changes), rows)
    if random() < 1 / FOLD_EVERY:
        fold(connection)


def fold(connection: Connection) -> None:
    """Adds up changes, unless another transaction does so just now."""
    if is_postgres(connection) and not connection.scalar(select(func.pg_try_advisory_xact_lock(raw(str(_FOLD_LOCK))))):
        return
    oldest = select(_changes.c.seq).order_by(_changes.c.seq).limit(FOLDED)
    gone = delete(_changes).where(_changes.c.seq.in_(oldest.scalar_subquery()))
    found = Counter[HourKey]()
    for *key, number in connection.execute(gone.returning(*(_changes.c[name] for name in _COLUMNS))):
        found[HourKey(*key)] += number
    _add_up(connection, [{**key._asdict(), "rows": found[key]} for key in sorted(found) if found[key]])


def hours_where(condition: Any) -> Any:
    """Selects counts, and changes that are not added to them yet, in one statement.

    Args:
        condition: Called with the columns of either table; returns the WHERE.
    """
    return union_all(
        *(select(*(table.c[name] for name in _COLUMNS)).where(*condition(table.c)) for table in (_counts, _changes))
    ).subquery()


def counting(adding: Any) -> Any:
    """Returns an INSERT into the counts that adds to those that are there."""
    total = _counts.c.rows + adding.excluded.rows
    return adding.on_conflict_do_update(index_elements=_COLUMNS[:3], set_={"rows": total})


def _add_up(connection: Connection, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    connection.execute(counting(upsert(connection, _counts)), rows)
    if any(row["rows"] < 0 for row in rows):
        queues = {row["queue"] for row in rows}
        connection.execute(
            delete(_counts).where(among(connection, _counts.c.queue, queues), _counts.c.rows == raw("0"))
        )
