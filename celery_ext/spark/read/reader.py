"""Reads waiting messages as rows, in Spark tasks."""

from collections.abc import Iterator
from itertools import compress

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from celery_ext.spark.broker import Broker
from celery_ext.spark.options import ReadOptions
from celery_ext.spark.read.batch import ReadRows
from celery_ext.spark.read.partitions import (
    WaitingPartition,
    WaitingSelection,
    WindowPartition,
    parts_of,
    plan,
    windows,
)
from celery_ext.spark.read.schema import OF_BODY
from kombu_delayq.store import BESIDE, DelayStore, Part, Scanned, may_be_duplicate, without_suffix


class _Seen:
    """The messages that were read in a journal, by id and due time: a message keeps both when it comes to Redis."""

    def __init__(self, store: DelayStore) -> None:
        self._store = store
        # Hashes take a third of the memory of ids, and two of some millions are hardly ever the same.
        self._keys: set[int] = set()

    def new_of(self, part: Part, page: Scanned) -> Scanned:
        """Returns a page of the journal as it is, and one of Redis without what was read in the journal."""
        if not page.members or (part.layout != BESIDE and not self._keys):
            return page
        ids = map(_shared, self._store.scan.ids(part, page.members))
        keys = list(map(hash, zip(ids, map(float, page.dues), strict=True)))
        if part.layout == BESIDE:
            self._keys.update(keys)
            return page
        is_new = [key not in self._keys for key in keys]
        return Scanned(
            list(compress(page.members, is_new)),
            list(compress(page.dues, is_new)),
            list(compress(page.lengths, is_new)),
            page.more,
        )


def _shared(stored_id: bytes) -> bytes:
    """Returns the id without the suffix that a message may get when it moves to where another has its id."""
    return without_suffix(stored_id) if may_be_duplicate(stored_id) else stored_id


class WaitingReader(DataSourceReader):
    """Reads waiting messages. Pickled to executors.

    Args:
        broker: The broker.
        selection: Which messages are selected.
        options: How they are read.
        schema: The columns of the DataFrame.
    """

    def __init__(self, broker: Broker, selection: WaitingSelection, options: ReadOptions, schema: pa.Schema) -> None:
        self._broker = broker
        self._selection = selection
        self._partitions = options.partitions
        self._page_size = options.page_size
        self._schema = schema
        self._wanted = {name.lower() for name in schema.names}

    def partitions(self) -> list[InputPartition]:
        """Cuts the messages that wait now into partitions of equal size.

        Raises:
            BrokerUnavailable: The broker does not answer.
        """
        store = self._broker.connect()
        try:
            if not self._broker.keeps_elsewhere:
                return list(plan(store, self._selection, self._partitions))
            return list(windows(store, self._selection, self._partitions))
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a partition."""
        store = self._broker.connect()
        try:
            if isinstance(partition, WaitingPartition):
                for part in parts_of(store, self._selection, partition):
                    yield from self._batches(store, part, self._selection)
            elif isinstance(partition, WindowPartition):
                yield from self._read_window(store, partition)
        finally:
            store.close()

    def _read_window(self, store: DelayStore, window: WindowPartition) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a window, tier by tier in the order in which messages move."""
        selection = WaitingSelection(self._selection.queues, window.from_ms, window.to_ms)
        seen = _Seen(store)
        for layout in (BESIDE, store.layout):
            # A message that moves may come to a queue that was empty before.
            for delayed, size in store.scan.sizes(self._selection.names(store), window.from_ms, window.to_ms).items():
                if size and delayed.layout == layout:
                    yield from self._batches(store, Part(delayed.queue, layout=layout), selection, seen)

    def _batches(
        self, store: DelayStore, part: Part, selection: WaitingSelection, seen: _Seen | None = None
    ) -> Iterator[pa.RecordBatch]:
        needs_id, needs_body = "task_id" in self._wanted, not OF_BODY.isdisjoint(self._wanted)
        rows, page = ReadRows(part), None
        while page is None or page.more:
            page = store.scan.scan(part, page, selection.from_ms, selection.to_ms, self._page_size)
            new = page if seen is None else seen.new_of(part, page)
            if new.members:
                ids = store.scan.ids(part, new.members) if needs_id else None
                # Where two messages have the same task id, only the body of the second has it.
                reads = needs_body or any(map(may_be_duplicate, ids or ()))
                rows.add(new, ids, store.scan.bodies(part, new.members) if reads else None)
            if rows.is_full:
                yield rows.batch(self._schema)
                rows = ReadRows(part)
        if len(rows):
            yield rows.batch(self._schema)
