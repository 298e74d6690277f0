"""The rows of the journal, a message each: read and changed within a transaction, and counted as that happens."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    and_,
    bindparam,
    delete,
    func,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy import literal_column as raw

from celery_ext.journal import schema
from celery_ext.journal.counts import HourKey, note
from celery_ext.journal.promotion import Row
from celery_ext.journal.schema import WAITING, next_numbers, upsert
from kombu_delayq.message import pages, unsigned
from kombu_delayq.store import hidden
from kombu_delayq.text import as_bytes


class Addition(NamedTuple):
    """A message on its way into the journal.

    Attributes:
        queue: The queue to which it goes when it is due.
        id: The id under which Redis would keep it.
        due_ms: Due time, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
        expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        key: What makes it the same message, where that is not its content: the job and the id of a bulk job's row.
    """

    queue: str
    id: str
    due_ms: float
    priority: int
    body: bytes
    expire_ms: int = 0
    key: bytes = b""

    def __repr__(self) -> str:
        return f"Addition(queue={self.queue!r}, id={self.id!r}, due_ms={self.due_ms!r}, body={hidden(self.body)})"

    @property
    def digest(self) -> bytes:
        """What makes it the same message: 16 bytes from its key, else from queue, priority and ``unsigned`` body."""
        if self.key:
            return blake2b(self.key, digest_size=16, person=b"key").digest()
        queue = as_bytes(self.queue)
        found = blake2b(b"%d %d " % (self.priority, len(queue)), digest_size=16)
        found.update(queue)
        found.update(unsigned(self.body))
        return found.digest()


_messages = schema.messages
#: About the most bytes of bodies that are read at once. A promoter has three such pages in hand.
MOST_BYTES = 8_000_000
_row = [_messages.c[name] for name in Row._fields]


def values_of(addition: Addition, state: int) -> dict[str, Any]:
    """Returns the columns of a new row, but for its number."""
    values = addition._asdict()
    del values["key"]
    return {**values, "digest": addition.digest, "state": state}


def insert_new(connection: Connection, rows: Iterable[dict[str, Any]]) -> dict[tuple[str, bytes], int]:
    """Inserts rows of ``values_of`` unless they are there.

    Returns:
        By id and digest, the numbers of the rows that are new.
    """
    wanted = {(row["id"], row["digest"]): row for row in rows}
    if not wanted:
        return {}
    statement = upsert(connection, _messages).on_conflict_do_nothing()
    returned = statement.returning(_messages.c.seq, _messages.c.id, _messages.c.digest)
    made = {(id_, bytes(digest)): seq for seq, id_, digest in connection.execute(returned, list(wanted.values()))}
    new = [wanted[key] for key in made]
    note(connection, (HourKey.of(row["queue"], row["state"], row["due_ms"]) for row in new))
    return made


def rows_where(
    connection: Connection, where: Sequence[ColumnElement[bool]], count: int | None = None, *, lock: bool = False
) -> list[Row]:
    """Returns rows in the order of their due times; with ``lock``, nobody changes them until the transaction ends."""
    found = select(*_row).where(*where).order_by(_messages.c.due_ms, _messages.c.seq).limit(count)
    return list(map(_row_of, connection.execute(found.with_for_update() if lock else found).all()))


def fitting(connection: Connection, order: Sequence[Any], where: Sequence[ColumnElement[bool]], count: int) -> int:
    """Returns how many of the first rows in an order, at most ``count``, have about ``MOST_BYTES`` in their bodies.

    The size of a body is known without reading it. One row counts in any case.
    """
    sizes = select(func.length(_messages.c.body)).where(*where).order_by(*order).limit(count)
    return len(next(pages(connection.scalars(sizes), count, MOST_BYTES, int), []))


def delete_where(connection: Connection, *where: ColumnElement[bool], bodies: bool = True) -> list[Row]:
    """Deletes rows. Returns them in the order of their due times; without their bodies, if nobody wants them."""
    row = _row if bodies else [literal(b"", LargeBinary) if one.name == "body" else one for one in _row]
    gone = [_row_of(found) for found in connection.execute(delete(_messages).where(*where).returning(*row))]
    note(connection, left=map(_hour_of, gone))
    return sorted(gone, key=lambda row: (row.due_ms, row.seq))


def set_epoch(connection: Connection, epoch: int, *where: ColumnElement[bool], were_waiting: bool) -> set[int]:
    """Notes that Redis was given rows, in an epoch. Returns their numbers."""
    changed = update(_messages).where(*where).values(state=epoch)
    found = connection.execute(changed.returning(_messages.c.seq, _messages.c.queue, _messages.c.due_ms)).all()
    if were_waiting:
        keys = [HourKey.of(queue, epoch, due_ms) for _, queue, due_ms in found]
        note(connection, keys, (key._replace(offered=False) for key in keys))
    return {seq for seq, _, _ in found}


def renumber(connection: Connection, *where: ColumnElement[bool]) -> dict[int, Row]:
    """Lets rows wait under new numbers.

    A row is updated, not deleted and inserted: a cancel that waits for it in another transaction then finds it.

    Returns:
        By old number, the rows as they are now.
    """
    rows = rows_where(connection, where, lock=True)
    numbers = next_numbers(connection, len(rows))
    renumbered = {row.seq: row._replace(seq=number, state=WAITING) for row, number in zip(rows, numbers, strict=True)}
    if renumbered:
        changed = (
            update(_messages).where(_messages.c.seq == bindparam("old")).values(seq=bindparam("new"), state=raw("0"))
        )
        connection.execute(changed, [{"old": old, "new": row.seq} for old, row in renumbered.items()])
    note(connection, map(_hour_of, renumbered.values()), map(_hour_of, rows))
    return renumbered


def rewrite(connection: Connection, row: Row, addition: Addition) -> None:
    """Gives a row another message, in its state. If another row has it already, both stay: they were apart before."""
    values = values_of(addition, row.state)
    digest = addition.digest
    same = select(_messages.c.seq).where(_messages.c.id == addition.id, _messages.c.digest == digest)
    if connection.scalar(same.where(_messages.c.seq != row.seq)) is not None:
        values["digest"] = blake2b(digest, digest_size=16, key=b"%d" % row.seq).digest()
    connection.execute(update(_messages).where(_messages.c.seq == row.seq).values(values))
    note(connection, [HourKey.of(addition.queue, row.state, addition.due_ms)], [_hour_of(row)])


def between(from_ms: float, to_ms: float, after: tuple[float, int] | None = None) -> list[ColumnElement[bool]]:
    """Returns conditions for a range of due times, and for what follows a due time and number in it."""
    bounds: list[ColumnElement[bool]] = []
    if from_ms > -inf:
        bounds.append(_messages.c.due_ms >= from_ms)
    if to_ms < inf:
        bounds.append(_messages.c.due_ms < to_ms)
    if after is not None:
        bounds.append(tuple_(_messages.c.due_ms, _messages.c.seq) > tuple_(*after))
    return bounds


def _hour_of(row: Row) -> HourKey:
    return HourKey.of(row.queue, row.state, row.due_ms)


def _row_of(found: Any) -> Row:
    row = Row._make(found)
    return row if type(row.body) is bytes else row._replace(body=bytes(row.body))  # a driver may return a memoryview


def in_state(state: int | None) -> list[ColumnElement[bool]]:
    """Returns the condition for a state; none for None."""
    if state is None:
        return []
    return [schema.is_waiting] if state == WAITING else [_messages.c.state == state]


def some_of(*where: ColumnElement[bool], count: int) -> Any:
    """Selects the numbers of at most so many rows of a queue, the next due first."""
    found = select(_messages.c.seq).where(*where).order_by(_messages.c.due_ms, _messages.c.seq)
    return found.limit(count).scalar_subquery()


def of_epoch(epoch: int) -> ColumnElement[bool]:
    """Returns the condition for rows that Redis was given in an epoch, as the index has it."""
    return and_(_messages.c.state == epoch, schema.is_offered)
