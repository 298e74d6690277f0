"""Reads messages that wait in the far tier."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.far.ids import id_texts
from celery_ext.spark.far.manifest import HOUR_US, DataFile, Unit, hour_us
from celery_ext.spark.far.rows import args_of, kwargs_of, offers_of
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.read.batch import Rows
from celery_ext.spark.read.seen import Seen
from celery_ext.spark.read.selection import WaitingSelection
from celery_ext.spark.read.windows import Weight
from kombu_delayq.connection.text import as_bytes
from kombu_delayq.store import SparkStore

#: Messages in an Arrow batch. For each batch Redis is asked once whether it was given some of them.
BATCH_ROWS = 4_000
#: Columns of a file that name a message and select it.
_ALWAYS = ("uuid", "id", "due", "queue")
#: Columns of a file that are needed for a column of waiting messages. The others need the message itself.
_NEEDED: dict[str, tuple[str, ...]] = {
    "queue": (),
    "task": ("task",),
    "task_id": (),
    "due": (),
    "eta": (),
    "priority": ("priority",),
    "retries": (),
    "args": ("args", "body"),
    "kwargs": ("kwargs", "body"),
    "layout": (),
}


class FarReader:
    """Reads the far tier. Pickled to executors.

    Args:
        tier: The tier.
        schema: The columns of the DataFrame.
    """

    def __init__(self, tier: FarTier, schema: pa.Schema) -> None:
        self._tier = tier
        self._schema = schema
        wanted = [name.lower() for name in schema.names]
        self._columns: list[str] | None = None
        if all(name in _NEEDED for name in wanted):
            self._columns = [*_ALWAYS, *dict.fromkeys(column for name in wanted for column in _NEEDED[name])]

    def weights(self, selection: WaitingSelection) -> list[Weight]:
        """Returns how many messages are due until the end of each hour; those that are cancelled count too."""
        return [
            Weight((hour_us(unit.hour) + HOUR_US) / 1000, rows)
            for unit in self._tier.units()
            if (rows := sum(file.rows for file in unit.files if _may_have(file, selection)))
        ]

    def read(self, store: SparkStore, selection: WaitingSelection, seen: Seen) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a selection that Redis was not given yet.

        Args:
            store: Store of the broker, which knows what it was given.
            selection: Which messages are read.
            seen: Gets the messages, so that they are left out where Redis is read after this.
        """
        for unit in self._tier.units():
            for file in unit.files:
                if _may_have(file, selection):
                    yield from self._read_file(store, selection, seen, unit, file)

    def _read_file(
        self, store: SparkStore, selection: WaitingSelection, seen: Seen, unit: Unit, file: DataFile
    ) -> Iterator[pa.RecordBatch]:
        table = self._tier.table(file, self._columns)
        if table is not None and self._columns is not None and _has_bodies(table):
            table = self._tier.table(file)
        if table is None:
            return  # Redis has its rows.
        live = self._tier.tombstones(unit.hour).live(table, unit.manifest.id)
        table = table if live is None else table.filter(live)
        table = table.filter(_selected(table, selection))
        for part in _parts(table):
            part = _not_sent(store, unit.job, part)
            if part.num_rows:
                seen.add(map(as_bytes, id_texts(part).to_pylist()), _due_ms(part).to_pylist())
                columns = _Columns(part, unit.manifest.id)
                arrays = [columns.of(field.name.lower()).cast(field.type) for field in self._schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Columns:
    """Makes the columns of rows that have the same template, in the order of their due times."""

    def __init__(self, table: pa.Table, manifest: str) -> None:
        self._table = table
        self._manifest = manifest
        self._rows: Rows | None = None

    def of(self, name: str) -> pa.Array:
        """Returns a column of waiting messages."""
        if name in ("queue", "task", "priority", "due"):
            return _whole(self._table[name])
        if name == "task_id":
            return id_texts(self._table)
        if name in ("layout", "retries"):
            return pa.repeat(pa.scalar("far" if name == "layout" else 0), self._table.num_rows)
        if name == "eta":
            return pa.array([due.astimezone(UTC).isoformat() for due in self._table["due"].to_pylist()], pa.string())
        if name in ("args", "kwargs") and not _has_bodies(self._table):
            return _whole(args_of(self._table) if name == "args" else kwargs_of(self._table))
        return self._of_messages(name)

    def _of_messages(self, name: str) -> pa.Array:
        if self._rows is None:
            [(queue, offers)] = offers_of(self._table, self._manifest).items()
            bodies = [as_bytes(offer.body) for offer in offers]
            members, dues = [as_bytes(offer.id) for offer in offers], [as_bytes(offer.due) for offer in offers]
            self._rows = Rows(queue, members, dues, list(map(len, bodies)), bodies, "far")
        kind = {"size": pa.int32(), "raw": pa.binary()}.get(name, pa.string())
        return self._rows.batch(pa.schema({name: kind})).column(0)


def _may_have(file: DataFile, selection: WaitingSelection) -> bool:
    """Whether a file may have selected messages, by its bounds and its queues."""
    if file.due_from_us / 1000 >= selection.to_ms or file.due_to_us / 1000 < selection.from_ms:
        return False
    return selection.queues is None or not set(selection.queues).isdisjoint(file.queues)


def _selected(table: pa.Table, selection: WaitingSelection) -> pa.ChunkedArray:
    due_ms = _due_ms(table)
    found = pc.and_(pc.greater_equal(due_ms, selection.from_ms), pc.less(due_ms, selection.to_ms))
    if selection.queues is not None:
        found = pc.and_(found, pc.is_in(table["queue"], pa.array(list(selection.queues), pa.string())))
    return found


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Yields rows in parts, as ``offers_of`` orders them, those of each template alone if templates were read."""
    table = table.take(pc.sort_indices(table["due"]))
    tables = [table]
    if "template" in table.schema.names:
        tables = [table.filter(pc.equal(table["template"], one)) for one in pc.unique(table["template"]).to_pylist()]
    for one in tables:
        for first in range(0, one.num_rows, BATCH_ROWS):
            yield one.slice(first, BATCH_ROWS)


def _not_sent(store: SparkStore, job: str, table: pa.Table) -> pa.Table:
    """Returns the rows that a promotion has not sent. Those that it has sent are read in Redis, or are gone."""
    if store.jobs.find(job) is None:
        return table
    sent = store.jobs.sent(job, list(zip(table["queue"].to_pylist(), id_texts(table).to_pylist(), strict=True)))
    # With the commit of a job Redis forgets which ids it has sent: all of them.
    found = store.jobs.find(job)
    if found is not None and found.state == "committed":
        return table.slice(0, 0)
    return table.filter(pa.array([not one for one in sent], pa.bool_()))


def _due_ms(table: pa.Table) -> pa.ChunkedArray:
    return pc.divide(table["due"].cast(pa.int64()).cast(pa.float64()), 1000.0)


def _has_bodies(table: pa.Table) -> bool:
    return "body" in table.schema.names and table["body"].null_count < table.num_rows


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
