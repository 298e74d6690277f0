"""The journal of one broker: what its tables can do. Errors of SQLAlchemy pass through as they are."""

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from math import inf
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, func, insert, or_, select, text, update

from celery_ext.journal.table import schema
from celery_ext.journal.table.rows import WAITING, Addition, Row

#: Most ids or numbers in one statement.
AT_ONCE = 500

_messages = schema.messages
_row = [_messages.c[name] for name in Row._fields]


class Journal:
    """Adds, finds, changes and promotes messages in the journal.

    Args:
        engine: The database.
    """

    def __init__(self, engine: Engine) -> None:
        self._given = engine

    @cached_property
    def engine(self) -> Engine:
        """The database, with its tables made."""
        _create(self._given)
        return self._given

    @cached_property
    def id(self) -> str:
        """Id of this journal, which no other has."""
        with self.engine.begin() as connection:
            return str(connection.scalar(select(schema.facts.c.value).where(schema.facts.c.name == "id")))

    # Messages come.

    def add(self, additions: Sequence[Addition], *, offered: bool = False) -> list[int | None]:
        """Adds messages in one transaction. The same message again changes nothing.

        Args:
            additions: The messages.
            offered: Whether Redis is given them, too; then their state is the current epoch, else ``WAITING``.

        Returns:
            For each message the number of its new row, or None if the journal has the message already.
        """
        if not additions:
            return []
        with self.engine.begin() as connection:
            state = self._epoch(connection) if offered else WAITING
            rows = [_values(one, state) for one in additions]
            made = insert_new(connection, rows)
            # ``pop``: of the same message twice in one call, one row is made.
            return [made.pop((row["id"], row["digest"]), None) for row in rows]

    # Messages are found.

    def get(self, ids: Collection[str], state: int | None = WAITING) -> list[Row]:
        """Returns the rows of ids, the next due first. ``state`` None: of any state."""
        with self.engine.connect() as connection:
            return [row for part in _parts(ids) for row in _rows(connection, _of_ids(part, state))]

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
        where = and_(_messages.c.queue == queue, _messages.c.state == WAITING, *_within(from_ms, to_ms))
        return self._page(where, after, count)

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts waiting rows of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        where = and_(_messages.c.queue == queue, _messages.c.state == WAITING, *_within(from_ms, to_ms))
        with self.engine.connect() as connection:
            return int(connection.scalar(select(func.count()).where(where)) or 0)

    def queues(self) -> list[str]:
        """Returns the names of the queues that have waiting rows."""
        with self.engine.connect() as connection:
            found = connection.scalars(select(_messages.c.queue).where(_messages.c.state == WAITING).distinct())
            return sorted(found)

    # Messages are changed.

    def delete(self, ids: Collection[str], state: int | None = None) -> list[Row]:
        """Deletes the rows of ids, of any state or of one. Returns them."""
        with self.engine.begin() as connection:
            return [row for part in _parts(ids) for row in _deleted(connection, _of_ids(part, state))]

    def delete_rows(self, seqs: Collection[int], state: int | None = WAITING) -> list[Row]:
        """Deletes rows by their numbers if they are in a state still. Returns them."""
        with self.engine.begin() as connection:
            return [row for part in _parts(seqs) for row in _deleted(connection, _of_seqs(part, state))]

    def replace(self, changes: Sequence[tuple[int, Addition]]) -> list[int | None]:
        """Puts a new row into the place of a waiting one, each in the same transaction.

        Args:
            changes: Number of each row, and the message that replaces it.

        Returns:
            The number of each new row; None where the row is not waiting any more, and nothing has changed.
        """
        done: list[int | None] = []
        with self.engine.begin() as connection:
            for seq, addition in changes:
                if not _deleted(connection, _of_seqs([seq], WAITING)):
                    done.append(None)
                    continue
                row = _values(addition, WAITING)
                insert_new(connection, [row])
                found = select(_messages.c.seq).where(_messages.c.id == row["id"], _messages.c.digest == row["digest"])
                done.append(connection.scalar(found))
        return done

    # Messages are promoted.

    def promotable(self, before_ms: float, count: int, after: tuple[float, int] | None = None) -> list[Row]:
        """Returns the waiting rows of all queues that are due before a time, in the order of their due times."""
        return self._page(and_(_messages.c.state == WAITING, *_within(-inf, before_ms)), after, count)

    def mark(self, seqs: Collection[int]) -> set[int]:
        """Notes that Redis was given rows. Returns the numbers of those that were waiting until now."""
        with self.engine.begin() as connection:
            epoch = self._epoch(connection)
            return {
                seq
                for part in _parts(seqs)
                for seq in connection.scalars(
                    update(_messages).where(_of_seqs(part, WAITING)).values(state=epoch).returning(_messages.c.seq)
                )
            }

    def _page(self, where: ColumnElement[bool], after: tuple[float, int] | None, count: int) -> list[Row]:
        if after is not None:
            due_ms, seq = after
            behind = or_(_messages.c.due_ms > due_ms, and_(_messages.c.due_ms == due_ms, _messages.c.seq > seq))
            where = and_(where, _messages.c.due_ms >= due_ms, behind)
        with self.engine.connect() as connection:
            return _rows(connection, where, count)

    def _epoch(self, connection: Connection) -> int:
        return int(connection.scalar(select(schema.facts.c.value).where(schema.facts.c.name == "epoch")) or 1)


def insert_new(connection: Connection, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, bytes], int]:
    """Inserts rows unless they are there. Returns the numbers of those that are new, by id and digest."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as upsert
    elif dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as upsert  # type: ignore[assignment]
    else:
        raise NotImplementedError(dialect)
    made: dict[tuple[str, bytes], int] = {}
    for at in range(0, len(rows), AT_ONCE):
        statement = upsert(_messages).values(list(rows[at : at + AT_ONCE])).on_conflict_do_nothing()
        for row in connection.execute(statement.returning(_messages.c.id, _messages.c.digest, _messages.c.seq)):
            made[row.id, bytes(row.digest)] = row.seq
    return made


def _values(addition: Addition, state: int) -> dict[str, Any]:
    values = addition._asdict()
    del values["key"]
    return {**values, "digest": addition.digest, "state": state}


def _create(engine: Engine) -> None:
    schema.metadata.create_all(engine)
    with engine.begin() as connection:
        known = set(connection.scalars(select(schema.facts.c.name)))
        for name, value in (("id", uuid4().hex), ("version", str(schema.VERSION)), ("epoch", "1"), ("beat", "0")):
            if name not in known:
                connection.execute(insert(schema.facts).values(name=name, value=value))


def _rows(connection: Connection, where: ColumnElement[bool], count: int | None = None) -> list[Row]:
    found = select(*_row).where(where).order_by(_messages.c.due_ms, _messages.c.seq).limit(count)
    return [_row_of(row) for row in connection.execute(found)]


def _deleted(connection: Connection, where: ColumnElement[bool]) -> list[Row]:
    return [_row_of(row) for row in connection.execute(delete(_messages).where(where).returning(*_row))]


def _row_of(found: Any) -> Row:
    row = Row._make(found)
    return row._replace(body=bytes(row.body))


def _of_ids(ids: Collection[str], state: int | None) -> ColumnElement[bool]:
    return and_(_messages.c.id.in_(ids), _in_state(state))


def _of_seqs(seqs: Collection[int], state: int | None) -> ColumnElement[bool]:
    return and_(_messages.c.seq.in_(seqs), _in_state(state))


def _in_state(state: int | None) -> ColumnElement[bool]:
    return text("1 = 1") if state is None else _messages.c.state == state  # type: ignore[return-value]


def _within(from_ms: float, to_ms: float) -> list[ColumnElement[bool]]:
    bounds: list[ColumnElement[bool]] = []
    if from_ms > -inf:
        bounds.append(_messages.c.due_ms >= from_ms)
    if to_ms < inf:
        bounds.append(_messages.c.due_ms < to_ms)
    return bounds


def _parts(items: Iterable[Any]) -> Iterable[list[Any]]:
    found = list(items)
    return (found[at : at + AT_ONCE] for at in range(0, len(found), AT_ONCE))
