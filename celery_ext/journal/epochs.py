"""Epochs: a loss of Redis ends one, and a restore goes through what Redis was given in it."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import inf
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, or_, select, update

from celery_ext.journal import schema
from celery_ext.journal.counts import epochs_given, queues_where
from celery_ext.journal.database import Database
from celery_ext.journal.facts import (
    Watermarks,
    epoch_in,
    facts_in,
    lock_epoch,
    raise_fact,
    set_fact,
    watermarks_in,
)
from celery_ext.journal.promotion import Row
from celery_ext.journal.rows import (
    between,
    delete_where,
    of_epoch,
    renumber,
    rows_where,
    set_epoch,
    some_of,
)
from celery_ext.journal.schema import MISSING, among

_messages = schema.messages
_epochs = schema.epochs


class Epoch(NamedTuple):
    """An epoch that has ended because Redis had lost data.

    Attributes:
        epoch: Its number.
        ended_ms: When the loss was noticed, ms since the epoch.
        watermarks: Up to where messages had left Redis by then.
        restored_ms: When its messages were all restored, ms since the epoch; None if they are not.
    """

    epoch: int
    ended_ms: float
    watermarks: Watermarks
    restored_ms: float | None


class Epochs:
    """Ends epochs, finds what Redis was given in them, and lets it wait again."""

    _database: Database

    def end_epoch(self, now_ms: float, epoch: int | None = None, lost: Collection[str] | None = None) -> int:
        """Ends the current epoch: Redis has lost data. Keeps the watermarks of then, and begins the next epoch.

        Args:
            now_ms: Time of now, ms since the epoch.
            epoch: Ends only this one, so that two who notice the same loss end one epoch.
            lost: The queues whose data are lost, where each is noticed by itself; None for all.

        Returns:
            The number of the current epoch, by then.
        """

        def work(connection: Connection) -> int:
            current = lock_epoch(connection, to_change=True)
            if epoch is not None and epoch != current:
                return current
            kept = watermarks_in(connection)
            if lost is not None:  # nothing of the other queues is due after the end of time
                kept = Watermarks(inf, {queue: kept.of(queue) for queue in lost})
            connection.execute(insert(_epochs).values(epoch=current, ended_ms=now_ms, watermarks=kept.dump()))
            return raise_fact(connection, "epoch", 1)

        return self._database.write(work)

    def epochs(self) -> list[Epoch]:
        """Returns all epochs that have ended, the oldest first."""
        return list(self._database.read(_ended).values())

    def unrestored(self) -> list[Epoch]:
        """Returns the epochs that have ended and are not restored, the oldest first."""
        return [one for one in self.epochs() if one.restored_ms is None]

    def finish_restore(self, epochs: Collection[int], now_ms: float) -> None:
        """Notes that the messages of epochs are all restored. Their rows may be trimmed from now on."""
        done = update(_epochs).where(_epochs.c.restored_ms.is_(None)).values(restored_ms=now_ms)
        self._database.write(
            lambda connection: connection.execute(done.where(among(connection, _epochs.c.epoch, epochs))) and None
        )

    def queues_in_redis(self) -> list[str]:
        """Returns the names of the queues with rows that Redis was given and has not lost, sorted."""
        with self._database.reading() as connection:
            ended = _ended(connection)
            found = {queue for epoch, queue in _given(connection) if loss_of(ended, epoch, queue) is None}
        return sorted(found)

    def lost_in(self) -> dict[int, list[tuple[str, int]]]:
        """Returns for each epoch the queues that lost data at its end, with the epochs in which Redis was given them.

        These are also earlier ones that ended with losses of other queues. Epochs without such rows are left out.
        """
        return self._database.read(_lost_in)

    def lost(
        self,
        epoch: int,
        queue: str,
        from_ms: float = -inf,
        after: tuple[float, int] | None = None,
        count: int = 500,
        given: int | None = None,
    ) -> list[Row]:
        """Returns rows of a queue that Redis was given before an epoch ended, and that had not left it by then.

        Args:
            epoch: Number of the epoch.
            queue: Name of the queue.
            from_ms: Least due time, ms since the epoch.
            after: Due time and number of the row after which to begin.
            count: Most rows.
            given: The epoch in which Redis was given them, as in ``lost_in``; by default the same.
        """
        with self._database.reading() as connection:
            loss = _ended(connection, _epochs.c.epoch == epoch).get(epoch)
            if loss is None:
                return []
            where = between(max(from_ms, loss.watermarks.of(queue)), inf, after)
            return rows_where(connection, [of_epoch(given or epoch), _messages.c.queue == queue, *where], count)

    def count_lost(self, queues: Collection[str] = (), from_ms: float = -inf) -> Counter[int]:
        """Counts by epoch what ``lost`` returns for all queues, or some. Takes longer the more there is."""
        found = Counter[int]()
        with self._database.reading() as connection:
            ended = _ended(connection)
            for epoch, lost in _lost_in(connection).items():
                for queue, given in lost:
                    least_ms = max(from_ms, ended[epoch].watermarks.of(queue))
                    where = of_epoch(given), _messages.c.queue == queue, *between(least_ms, inf)
                    if not queues or queue in queues:
                        found[epoch] += connection.scalar(select(func.count()).where(*where)) or 0
        return found

    def note_missing(self, seqs: Collection[int], now_ms: float) -> None:
        """Notes rows whose messages Redis was given and has not any more, until a restore lets them wait again."""

        def work(connection: Connection) -> None:
            where = among(connection, _messages.c.seq, seqs), schema.is_offered
            if set_epoch(connection, MISSING, *where, were_waiting=False):
                set_fact(connection, "missing_ms", repr(now_ms))

        self._database.write(work)

    def missing(
        self, queue: str, from_ms: float = -inf, after: tuple[float, int] | None = None, count: int = 500
    ) -> list[Row]:
        """Returns rows of ``note_missing`` of a queue, the next due first; see ``lost``."""
        with self._database.reading() as connection:
            where = [schema.is_missing, _messages.c.queue == queue, *between(from_ms, inf, after)]
            return rows_where(connection, where, count)

    def queues_missing(self) -> list[str]:
        """Returns the names of the queues with rows of ``note_missing``, sorted."""
        return self._database.read(lambda connection: sorted(queues_where(connection, schema.is_missing)))

    def count_missing(self, queues: Collection[str] = (), from_ms: float = -inf) -> int:
        """Counts the rows of ``note_missing``, of all queues or some."""
        with self._database.reading() as connection:
            where = [schema.is_missing, *between(from_ms, inf)]
            where += [among(connection, _messages.c.queue, queues)] if queues else []
            return connection.scalar(select(func.count()).where(*where)) or 0

    def missing_ms(self) -> float:
        """Returns when rows were noted as missing last, ms since the epoch; 0 if none is missing."""
        with self._database.reading() as connection:
            has_some = connection.scalar(select(_messages.c.seq).where(schema.is_missing).limit(1)) is not None
            return float(facts_in(connection)["missing_ms"]) if has_some else 0.0

    def written(self, after: int, until: int, before_ms: float) -> list[Row]:
        """Returns rows that Redis was given, of the numbers behind one to another, and that are due before a time."""
        with self._database.reading() as connection:
            numbers = _messages.c.seq > after, _messages.c.seq <= until
            return rows_where(connection, [*numbers, schema.is_offered, *between(-inf, before_ms)])

    def wait_again(self, seqs: Collection[int]) -> list[Row]:
        """Lets rows wait that Redis was given in an epoch that has ended: under new numbers, as Redis knows the old.

        Returns:
            The new rows, the next due first.
        """

        def work(connection: Connection) -> list[Row]:
            found = renumber(connection, among(connection, _messages.c.seq, seqs), _before(epoch_in(connection)))
            raise_fact(connection, "restored", len(found))
            return list(found.values())

        return self._database.write(work)

    def keep(self, seqs: Collection[int]) -> set[int]:
        """Takes rows of an epoch that has ended into the current one, because Redis has them still.

        Returns:
            Their numbers.
        """

        def work(connection: Connection) -> set[int]:
            current = lock_epoch(connection)
            where = among(connection, _messages.c.seq, seqs), _before(current)
            return set_epoch(connection, current, *where, were_waiting=False)

        return self._database.write(work)

    def offered(
        self,
        queue: str,
        after: tuple[float, int] | None = None,
        from_ms: float = -inf,
        count: int = 500,
    ) -> list[Row]:
        """Returns rows of a queue that Redis was given and has not lost, in the order of their due times; see ``lost``.

        These are also rows of earlier epochs, if those ended with losses of other queues.
        """
        with self._database.reading() as connection:
            where = [_messages.c.queue == queue, *between(from_ms, inf, after)]
            ended = _ended(connection)
            kept = [epoch for epoch in epochs_given(connection) if loss_of(ended, epoch, queue) is None]
            found = [row for epoch in kept for row in rows_where(connection, [of_epoch(epoch), *where], count)]
        return sorted(found, key=lambda row: (row.due_ms, row.seq))[:count]

    def trim(self, retention_ms: float, count: int = 1_000) -> int:
        """Deletes rows of messages that have left Redis: those due before their watermark, and by a time more.

        A row that may be lost in an epoch that is not restored stays. A restored epoch goes once no row is from before
        its end.

        Args:
            retention_ms: How long rows are kept after their due time, in ms.
            count: Most rows of this call.

        Returns:
            How many rows it has deleted; 0 if there are none any more.
        """

        def work(connection: Connection) -> int:
            left = count
            for where in _left(connection, retention_ms):
                gone = delete_where(connection, _messages.c.seq.in_(some_of(where, count=left)), bodies=False)
                left -= len(gone)
                if left <= 0:
                    return count
            first = min(epochs_given(connection), default=epoch_in(connection))
            connection.execute(delete(_epochs).where(_epochs.c.restored_ms.is_not(None), _epochs.c.epoch < first))
            return count - left

        return self._database.write(work, durable=False)


def _left(connection: Connection, retention_ms: float) -> Iterator[ColumnElement[bool]]:
    """Yields for each epoch and queue which rows have left Redis, and by a time more."""
    now, ended = watermarks_in(connection), _ended(connection)
    for epoch, queue in _given(connection):
        loss = loss_of(ended, epoch, queue)
        kept_ms = inf if loss is None or loss.restored_ms is not None else loss.watermarks.of(queue)
        before = min(now.of(queue) - retention_ms, kept_ms)
        yield and_(of_epoch(epoch), _messages.c.queue == queue, _messages.c.due_ms < before)


def _given(connection: Connection) -> Iterator[tuple[int, str]]:
    """Yields each epoch in which Redis was given rows that are still here, with each queue of these."""
    for epoch in epochs_given(connection):
        for queue in queues_where(connection, of_epoch(epoch)):
            yield epoch, queue


def loss_of(ended: Mapping[int, Epoch], epoch: int, queue: str) -> Epoch | None:
    """Returns the first epoch, from the given one on, that ended with a loss of a queue; None if none did."""
    while epoch in ended:
        if ended[epoch].watermarks.of(queue) < inf:
            return ended[epoch]
        epoch += 1
    return None


def _lost_in(connection: Connection) -> dict[int, list[tuple[str, int]]]:
    ended, found = _ended(connection), dict[int, list[tuple[str, int]]]()
    for given, queue in _given(connection):
        loss = loss_of(ended, given, queue)
        if loss is not None:
            found.setdefault(loss.epoch, []).append((queue, given))
    return found


def _ended(connection: Connection, *where: ColumnElement[bool]) -> dict[int, Epoch]:
    """Returns the epochs that have ended by their numbers, the oldest first."""
    found = select(_epochs.c.epoch, _epochs.c.ended_ms, _epochs.c.watermarks, _epochs.c.restored_ms).where(*where)
    return {
        epoch: Epoch(epoch, ended_ms, Watermarks.load(marks), restored_ms)
        for epoch, ended_ms, marks, restored_ms in connection.execute(found.order_by(_epochs.c.epoch))
    }


def _before(epoch: int) -> ColumnElement[bool]:
    return or_(schema.is_missing, and_(schema.is_offered, _messages.c.state < epoch))
