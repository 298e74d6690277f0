"""Reads waiting messages as rows, in Spark tasks."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import compress
from math import ceil
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from celery_ext.spark.broker import Broker
from celery_ext.spark.options import ReadOptions
from celery_ext.spark.read.batch import Rows, rows_of_layout
from celery_ext.spark.read.partitions import (
    PARTITION_MESSAGES,
    WaitingPartition,
    WaitingSelection,
    WindowPartition,
    parts_of,
    plan,
    store_weights,
    windows,
)
from celery_ext.spark.read.schema import OF_BODY
from kombu_delayq.store import SparkStore
from kombu_delayq.store.hash_layout import may_be_duplicate, without_suffix
from kombu_delayq.store.types import JOURNAL, Part, Scanned

#: Returns of a page of a part what has not come already.
_Sift = Callable[[Part, Scanned], Scanned]


class _Seen:
    """The messages that were read in a journal, by id and due time: a message keeps both when it comes to Redis."""

    def __init__(self, store: SparkStore) -> None:
        self._store = store
        # Hashes take a third of the memory of ids, and two of some millions are hardly ever the same.
        self._keys: set[int] = set()

    def note(self, part: Part, page: Scanned) -> Scanned:
        """Returns a page of the journal as it is, and notes its messages."""
        self._keys.update(self._keys_of(part, page))
        return page

    def new_of(self, part: Part, page: Scanned) -> Scanned:
        """Returns a page of Redis without the messages that were noted."""
        if not self._keys:
            return page
        keys = self._keys_of(part, page)
        is_new = [key not in self._keys for key in keys]
        if all(is_new):
            return page
        return Scanned(
            list(compress(page.members, is_new)),
            list(compress(page.dues, is_new)),
            list(compress(page.lengths, is_new)),
            page.more,
        )

    def _keys_of(self, part: Part, page: Scanned) -> list[int]:
        ids = map(_shared, self._store.scan.ids(part, page.members)) if page.members else ()
        return list(map(hash, zip(ids, map(float, page.dues), strict=True)))


def _shared(stored_id: bytes) -> bytes:
    """Returns the id without the suffix that a message may get when it moves to where another has its id."""
    return without_suffix(stored_id) if may_be_duplicate(stored_id) else stored_id


#: Messages, and bytes of messages, with which an Arrow batch is full.
BATCH_ROWS, BATCH_BYTES = 4_000, 4_000_000


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
            if not self._broker.has_journal:
                return list(plan(store, self._selection, self._partitions))
            return list(self._windows(store))
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

    def _windows(self, store: SparkStore) -> list[WindowPartition]:
        weights = store_weights(store, self._selection, self._queues(store), PARTITION_MESSAGES)
        total = sum(weight.messages for weight in weights)
        return windows(self._selection, weights, self._partitions or ceil(total / PARTITION_MESSAGES))

    def _read_window(self, store: SparkStore, window: WindowPartition) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a window, tier by tier in the order in which messages move."""
        selection = WaitingSelection(self._selection.queues, window.from_ms, window.to_ms)
        seen = _Seen(store)
        for layout, sift in ((JOURNAL, seen.note), (store.layout, seen.new_of)):
            # A message that moves may come to a queue that was empty before.
            for delayed, size in store.scan.sizes(self._queues(store), window.from_ms, window.to_ms).items():
                if size and delayed.layout == layout:
                    yield from self._batches(store, Part(delayed.queue, layout=layout), selection, sift)

    def _queues(self, store: SparkStore) -> Collection[str]:
        queues = self._selection.queues
        return store.queues.names() if queues is None else list(dict.fromkeys(queues))

    def _batches(
        self, store: SparkStore, part: Part, selection: WaitingSelection, sift: _Sift | None = None
    ) -> Iterator[pa.RecordBatch]:
        collected, kind = _Collected(part), rows_of_layout(part.layout)
        needs_id, needs_body = "task_id" in self._wanted, not OF_BODY.isdisjoint(self._wanted)
        for page in self._pages(store, part, selection, sift):
            # Where two messages have the same task id, only the body of the second has it.
            reads = needs_body or (needs_id and kind.may_share_ids(page.members))
            stored = store.scan.bodies(part, page.members) if reads else None
            ids = store.scan.ids(part, page.members) if needs_id and kind.has_ids_apart else []
            collected.add(page, stored, ids)
            if collected.is_full:
                yield collected.rows().batch(self._schema)
                collected = _Collected(part)
        if collected.members:
            yield collected.rows().batch(self._schema)

    def _pages(
        self, store: SparkStore, part: Part, selection: WaitingSelection, sift: _Sift | None
    ) -> Iterator[Scanned]:
        page = None
        while page is None or page.more:
            page = store.scan.scan(part, page, selection.from_ms, selection.to_ms, self._page_size)
            new = page if sift is None else sift(part, page)
            if new.members:
                yield new


class _Collected:
    """Collects pages of one part until they fill a batch."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._kind = rows_of_layout(part.layout)
        self._dues: list[bytes] = []
        self._lengths: list[int] = []
        self._stored: list[bytes | None] = []
        self._ids: list[bytes] = []
        self._bytes = 0
        self.members: list[bytes] = []

    @property
    def is_full(self) -> bool:
        """Whether the pages fill a batch."""
        return len(self.members) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, page: Scanned, stored: list[bytes | None] | None, ids: list[bytes]) -> None:
        """Adds a page, without the messages that no longer wait."""
        members = self._kind.kept(page.members)
        # A page without bodies has None for each message, because all columns have the same length.
        added: tuple[Sequence[Any], ...] = (members, page.dues, page.lengths, stored or [None] * len(members))
        if stored is not None:
            waits = [value is not None for value in stored]
            added = tuple(list(compress(column, waits)) for column in added)
            self._bytes += sum(page.lengths)
        columns: tuple[list[Any], ...] = (self.members, self._dues, self._lengths, self._stored)
        for column, more in zip(columns, added, strict=True):
            column += more
        self._ids += ids  # where they are apart, members contain the messages, so that no message is left out

    def rows(self) -> Rows:
        """Returns the collected messages."""
        found = (self.members, self._dues, self._lengths, self._stored)
        return self._kind(self._part.queue, *found, self._part.layout, self._ids)
