"""Counts rows by the hour, in the transactions in which they come and leave, and answers counts from that."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, pairwise
from math import ceil, floor, inf
from random import random
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, union_all
from sqlalchemy import literal_column as raw

from celery_ext.journal import schema
from celery_ext.journal.database import Database
from celery_ext.journal.schema import WAITING, among, is_postgres, ranges_of, upsert

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


def note(connection: Connection, came: Iterable[HourKey] = (), left: Iterable[HourKey] = ()) -> None:
    """Counts rows that came or left, in the transaction in which they do."""
    changes = Counter(came)
    changes.subtract(left)
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
    """Selects counts, and changes that are not added to them yet, where `condition(columns of either table)` holds."""
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


_messages = schema.messages


class Sizes(NamedTuple):
    """How many rows a queue has.

    Attributes:
        waiting: Messages that only the journal has.
        offered: Messages that Redis was given.
    """

    waiting: int
    offered: int


class Counting:
    """Counts waiting rows, in a time that does not grow with their number."""

    _database: Database

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts waiting rows of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return self._database.read(lambda connection: _count(connection, queue, from_ms, to_ms))

    def counts(
        self, from_ms: float = -inf, to_ms: float = inf, queues: Collection[str] | None = None
    ) -> dict[str, int]:
        """Counts waiting rows of some queues, or of all, in a range of due times. Leaves out queues without any."""
        with self._database.reading() as connection:
            names = sorted(queues_where(connection) if queues is None else queues)
            found = {queue: _count(connection, queue, from_ms, to_ms) for queue in names}
        return {queue: number for queue, number in found.items() if number}

    def due_counts(self, queues: Sequence[str], bounds_ms: Sequence[float]) -> dict[str, list[int]]:
        """Counts how many waiting rows of queues come due when.

        Args:
            queues: Names of the queues.
            bounds_ms: Bounds of the buckets, ms since the epoch, ascending; ``inf`` with either sign is allowed.

        Returns:
            For each queue, how many of its rows are due from each bound on and before the next one, so one number less
            than there are bounds.
        """
        with self._database.reading() as connection:
            return {queue: _due_counts(connection, queue, bounds_ms) for queue in queues}

    def queues(self) -> list[str]:
        """Returns the names of the queues that have waiting rows, sorted."""
        return self._database.read(queues_where)

    def sizes(self) -> dict[str, Sizes]:
        """Counts the rows of all queues that have any."""
        found = Counter[tuple[str, bool]]()
        with self._database.reading() as connection:
            hours = hours_where(lambda columns: [])
            summed = select(hours.c.queue, hours.c.offered, func.sum(hours.c.rows))
            for queue, offered, number in connection.execute(summed.group_by(hours.c.queue, hours.c.offered)):
                found[queue, bool(offered)] += int(number)
        names = sorted({queue for (queue, _), number in found.items() if number})
        return {queue: Sizes(found[queue, False], found[queue, True]) for queue in names}

    def boundaries(self, queue: str, ranks: Sequence[int], from_ms: float = -inf, to_ms: float = inf) -> list[float]:
        """Returns the due times of the waiting rows at some ranks of a selection, for dividing it into parts.

        Args:
            queue: Name of the queue.
            ranks: Ranks in the order of due times, from 0, in any order.
            from_ms: Least due time of the selection, ms since the epoch.
            to_ms: Due time that all of the selection are before.

        Returns:
            A due time for each rank; ``inf`` for a rank beyond the last row.
        """
        with self._database.reading() as connection:
            first = 0 if from_ms == -inf else _count(connection, queue, -inf, from_ms)
            hours = _histogram(connection, queue, None, None)
            before = [0, *accumulate(number for _, number in hours)]
            found = [_due_at(connection, queue, hours, before, first + rank) for rank in ranks]
        return [due_ms if due_ms < to_ms else inf for due_ms in found]

    def next_due(self, queue: str | None = None) -> float | None:
        """Returns when the first waiting row is due, of a queue or of all, ms since the epoch; None without any."""
        where = [schema.is_waiting] if queue is None else [schema.is_waiting, _messages.c.queue == queue]
        found = select(_messages.c.due_ms).where(*where).order_by(_messages.c.due_ms).limit(1)
        return self._database.read(lambda connection: connection.scalar(found))


def queues_where(connection: Connection, where: ColumnElement[bool] = schema.is_waiting) -> list[str]:
    """Returns the queues that have rows in a state, sorted."""
    return sorted(_jump(connection, _messages.c.queue, where))


def epochs_given(connection: Connection) -> list[int]:
    """Returns the epochs in which Redis was given rows that are still here, the first first."""
    return sorted(_jump(connection, _messages.c.state, schema.is_offered))


def _jump(connection: Connection, column: Any, where: ColumnElement[bool]) -> Iterable[Any]:
    """Yields the values of the first column of an index, by jumps from each to the next."""
    first = select(func.min(column).label("value")).where(where).cte("found", recursive=True)
    following = select(func.min(column)).where(where, column > first.c.value)
    found = first.union_all(select(following.scalar_subquery()).where(first.c.value.is_not(None)))
    return connection.scalars(select(found.c.value).where(found.c.value.is_not(None)))


def _waiting_hours(queue: str, from_hour: int | None, to_hour: int | None) -> Any:
    def condition(columns: Any) -> list[Any]:
        bounds = [columns.queue == queue, columns.offered.is_(False)]
        if from_hour is not None:
            bounds.append(columns.hour >= from_hour)
        if to_hour is not None:
            bounds.append(columns.hour < to_hour)
        return bounds

    return hours_where(condition)


def _count(connection: Connection, queue: str, from_ms: float, to_ms: float) -> int:
    pieces, hours = _pieces(from_ms, to_ms)
    parts = [_rows_between(queue, *piece) for piece in pieces]
    if hours is not None:
        summed = _waiting_hours(queue, *hours)
        parts.append(select(func.coalesce(func.sum(summed.c.rows), 0)).scalar_subquery())
    if not parts:
        return 0
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return int(connection.scalar(select(total)) or 0)


def _pieces(from_ms: float, to_ms: float) -> tuple[list[tuple[float, float]], tuple[int | None, int | None] | None]:
    """Returns the ranges to count row by row, and the whole hours between them: the first, the one after the last."""
    if from_ms >= to_ms:
        return [], None
    first = None if from_ms == -inf else ceil(from_ms / HOUR_MS)
    end = None if to_ms == inf else floor(to_ms / HOUR_MS)
    if first is not None and end is not None and first > end:
        return [(from_ms, to_ms)], None
    ranges = []
    if first is not None and from_ms < first * HOUR_MS:
        ranges.append((from_ms, float(first * HOUR_MS)))
    if end is not None and end * HOUR_MS < to_ms:
        ranges.append((float(end * HOUR_MS), to_ms))
    return ranges, None if first == end and first is not None else (first, end)


def _rows_between(queue: str, from_ms: Any, to_ms: Any) -> Any:
    where = [_messages.c.queue == queue, schema.is_waiting, _messages.c.due_ms >= from_ms, _messages.c.due_ms < to_ms]
    return select(func.count()).select_from(_messages).where(*where).correlate_except(_messages).scalar_subquery()


def _histogram(connection: Connection, queue: str, from_hour: int | None, to_hour: int | None) -> list[tuple[int, int]]:
    """Returns how many waiting rows of a queue are due in each hour that has any, in order."""
    hours = _waiting_hours(queue, from_hour, to_hour)
    summed = select(hours.c.hour, func.sum(hours.c.rows)).group_by(hours.c.hour).order_by(hours.c.hour)
    return [(hour, int(number)) for hour, number in connection.execute(summed) if number]


def _due_counts(connection: Connection, queue: str, bounds_ms: Sequence[float]) -> list[int]:
    buckets = [_pieces(low, high) for low, high in pairwise(bounds_ms)]
    spans = [hours for _, hours in buckets if hours is not None]
    by_hour = _histogram(connection, queue, spans[0][0], spans[-1][1]) if spans else []
    hours = [hour for hour, _ in by_hour]
    before = [0, *accumulate(number for _, number in by_hour)]

    def until(hour: int | None, otherwise: int) -> int:
        return otherwise if hour is None else before[bisect_right(hours, hour - 1)]

    exact = iter(_exact(connection, queue, [piece for pieces, _ in buckets for piece in pieces]))
    found = []
    for pieces, span in buckets:
        whole = 0 if span is None else until(span[1], before[-1]) - until(span[0], 0)
        found.append(whole + sum(next(exact) for _ in pieces))
    return found


def _exact(connection: Connection, queue: str, ranges: Iterable[tuple[float, float]]) -> list[int]:
    wanted = list(ranges)
    given, number, low, high = ranges_of(connection, wanted)
    counted = select(_rows_between(queue, low, high)).select_from(given).order_by(number)
    return [int(one) for one in connection.scalars(counted)]


def _due_at(connection: Connection, queue: str, hours: list[tuple[int, int]], before: list[int], rank: int) -> float:
    at = bisect_right(before, rank) - 1
    if at >= len(hours):
        return inf
    from_ms = hours[at][0] * HOUR_MS
    where = [_messages.c.queue == queue, schema.is_waiting, _messages.c.due_ms >= from_ms]
    found = select(_messages.c.due_ms).where(*where).order_by(_messages.c.due_ms, _messages.c.seq)
    due_ms = connection.scalar(found.offset(rank - before[at]).limit(1))
    return inf if due_ms is None else due_ms
