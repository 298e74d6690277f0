"""Reads waiting messages as rows, in Spark tasks."""

from collections.abc import Iterator
from itertools import compress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from celery_ext.spark.broker import Broker
from celery_ext.spark.options import ReadOptions
from celery_ext.spark.read.batch import RedissonRows, Rows
from celery_ext.spark.read.partitions import WaitingPartition, parts_of, plan
from celery_ext.spark.read.schema import OF_BODY
from celery_ext.spark.read.selection import WaitingSelection
from kombu_delayq.store import SparkStore
from kombu_delayq.store.formats.hash import id_of, may_be_twin
from kombu_delayq.store.formats.redisson import mark_of
from kombu_delayq.store.types import Part, Scanned

#: An Arrow batch is full with so many messages, or so many bytes of them.
BATCH_ROWS, BATCH_BYTES = 4_000, 4_000_000


class WaitingReader(DataSourceReader):
    """Reads waiting messages. It is pickled to the tasks.

    Args:
        broker: Where they wait.
        selection: Which of them.
        options: How they are read.
        schema: The columns that are wanted.
    """

    def __init__(self, broker: Broker, selection: WaitingSelection, options: ReadOptions, schema: pa.Schema) -> None:
        self._broker = broker
        self._selection = selection
        self._partitions = options.partitions
        self._page_size = options.page_size
        self._schema = schema
        self._wanted = {name.lower() for name in schema.names}

    def partitions(self) -> list[InputPartition]:
        """Cuts what waits just now into portions of as many messages each.

        Raises:
            BrokerUnavailable: The broker does not answer.
        """
        store = self._broker.connect()
        try:
            return list(plan(store, self._selection, self._partitions))
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a portion."""
        if not isinstance(partition, WaitingPartition):
            return
        store = self._broker.connect()
        try:
            for part in parts_of(store, self._selection, partition):
                yield from self._batches(store, part)
        finally:
            store.close()

    def _batches(self, store: SparkStore, part: Part) -> Iterator[pa.RecordBatch]:
        gathered = _Gathered(part)
        for page in self._pages(store, part):
            stored = store.scan.bodies(part, page.members) if self._needs_bodies(part, page) else None
            ids = store.scan.ids(part, page.members) if self._needs_ids(part) else None
            gathered.add(page, stored, ids)
            if gathered.is_full:
                yield gathered.rows().batch(self._schema)
                gathered = _Gathered(part)
        if gathered.members:
            yield gathered.rows().batch(self._schema)

    def _pages(self, store: SparkStore, part: Part) -> Iterator[Scanned]:
        page = None
        while page is None or page.more:
            page = store.scan.scan(part, page, self._selection.from_ms, self._selection.to_ms, self._page_size)
            if page.members:
                yield page

    def _needs_bodies(self, part: Part, page: Scanned) -> bool:
        if not OF_BODY.isdisjoint(self._wanted):
            return True
        # A message that is stored beside another of its id tells its id in its body only.
        is_twin = part.backup == "hash" and any(may_be_twin(id_of(member)) for member in page.members)
        return "task_id" in self._wanted and is_twin

    def _needs_ids(self, part: Part) -> bool:
        return part.backup == "list" and "task_id" in self._wanted


class _Gathered:
    """Pages of one part on their way into a batch."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._dues: list[bytes] = []
        self._lengths: list[int] = []
        self._stored: list[bytes | None] = []
        self._ids: list[bytes] = []
        self._bytes = 0
        self.members: list[bytes] = []

    @property
    def is_full(self) -> bool:
        """Whether it is time for a batch."""
        return len(self.members) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, page: Scanned, stored: list[bytes | None] | None, ids: list[bytes] | None) -> None:
        """Takes a page, but for the messages that do not wait any more."""
        # Of an entry of Redisson's form, with the message in it, only the mark is kept.
        members = list(map(mark_of, page.members)) if self._part.backup == "list" else page.members
        # One page of a batch may need its bodies and another not, but each message has one entry in every column.
        found: tuple[list[Any], ...] = (members, page.dues, page.lengths, stored or [None] * len(members))
        if stored is not None:
            waits = [each is not None for each in stored]
            found = tuple(list(compress(each, waits)) for each in found)
            self._bytes += sum(page.lengths)
        columns: tuple[list[Any], ...] = (self.members, self._dues, self._lengths, self._stored)
        for column, more in zip(columns, found, strict=True):
            column += more
        self._ids += ids or ()  # of messages with their entries, all of which wait

    def rows(self) -> Rows:
        """Returns what was gathered."""
        found = (self._part.queue, self.members, self._dues, self._lengths, self._stored)
        return RedissonRows(*found, self._ids) if self._part.backup == "list" else Rows(*found)
