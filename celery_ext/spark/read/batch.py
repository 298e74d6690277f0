"""Waiting messages as an Arrow batch: only the columns that are wanted, a column at a time."""

from collections.abc import Sequence
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import pyarrow as pa

from celery_ext.spark.read.parse import (
    Arguments,
    Headers,
    OrdinaryTask,
    as_json,
    int32,
    ordinary,
    texts,
    timestamps,
    valid,
)
from celery_ext.waiting import DelayedTask
from kombu_delayq.store import LAYOUT_OF, Part, Scanned, Waiting, may_be_duplicate
from kombu_delayq.text import as_text

#: Messages, and bytes of messages, with which a batch is full.
BATCH_ROWS, BATCH_BYTES = 4_000, 4_000_000


class _Head(NamedTuple):
    """What columns have of the headers of a message that is no ordinary task."""

    task: str | None
    eta: str | None
    retries: int | None


class ReadRows:
    """Some waiting messages of one part of a queue.

    Args:
        part: The part. Messages of a journal are kept as those of the layout hash.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._layout = LAYOUT_OF[part.layout]
        # Each list has one entry for each message.
        self._members: list[bytes] = []
        self._dues: list[bytes] = []
        self._lengths: list[int] = []
        self._ids: list[bytes] = []
        self._stored: list[bytes | None] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def is_full(self) -> bool:
        """Whether these are enough for a batch."""
        return len(self) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, page: Scanned, ids: Sequence[bytes] | None, stored: Sequence[bytes | None] | None) -> None:
        """Adds a page, without the messages that no longer wait.

        Args:
            page: The page.
            ids: As of ``Scan.ids``; None if no column needs them.
            stored: As of ``Scan.bodies``; None if no column needs them.
        """
        count = len(page.members)
        members = list(map(self._layout.kept, page.members))
        columns: tuple[Sequence[Any], ...]
        columns = members, page.dues, page.lengths, ids or [b""] * count, stored or [None] * count
        if stored is not None:
            waits = [value is not None for value in stored]
            columns = tuple(list(compress(column, waits)) for column in columns)
            self._bytes += sum(page.lengths)
        own: tuple[list[Any], ...] = (self._members, self._dues, self._lengths, self._ids, self._stored)
        for column, more in zip(own, columns, strict=True):
            column += more

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Returns the columns of a schema. Their names may be in any case."""
        columns = [getattr(self, f"_{name.lower()}_column")() for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _queue_column(self) -> pa.Array:
        return pa.repeat(pa.scalar(valid(self._part.queue), pa.string()), len(self))

    def _layout_column(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._part.layout, pa.string()), len(self))

    def _task_column(self) -> pa.Array:
        return pa.array([head.task for head in self._heads], pa.string())

    def _task_id_column(self) -> pa.Array:
        ids = list(self._ids)
        for row, stored_id in enumerate(ids):
            if may_be_duplicate(stored_id):
                ids[row] = self._delayed_task(row).id.encode(errors="surrogateescape")
        return texts(ids)

    def _due_column(self) -> pa.Array:
        return timestamps(self._dues)

    def _eta_column(self) -> pa.Array:
        return pa.array([head.eta for head in self._heads], pa.string())

    def _priority_column(self) -> pa.Array:
        stored = zip(self._members, self._stored, strict=True)
        return pa.array(
            [self._layout.priority(member, value) if value else None for member, value in stored], pa.int32()
        )

    def _retries_column(self) -> pa.Array:
        return pa.array([head.retries for head in self._heads], pa.int32())

    def _args_column(self) -> pa.Array:
        return texts([args for args, _ in self._arguments])

    def _kwargs_column(self) -> pa.Array:
        return texts([kwargs for _, kwargs in self._arguments])

    def _size_column(self) -> pa.Array:
        stored = zip(self._members, self._lengths, strict=True)
        lengths = [self._layout.length(member, length) if length else None for member, length in stored]
        return pa.array(lengths, pa.int32())

    def _raw_column(self) -> pa.Array:
        return pa.array(self._bodies, pa.binary())

    @cached_property
    def _bodies(self) -> list[bytes | None]:
        return [self._layout.body(value) if value else None for value in self._stored]

    @cached_property
    def _tasks(self) -> list[OrdinaryTask | None]:
        """The messages that are ordinary tasks. All others, and damaged ones, are read one by one."""
        return list(map(ordinary, self._bodies))

    @cached_property
    def _heads(self) -> list[Headers | _Head]:
        return [self._other_head(row) if task is None else task.headers for row, task in enumerate(self._tasks)]

    @cached_property
    def _arguments(self) -> list[Arguments]:
        found = [None if task is None else task.arguments() for task in self._tasks]
        return [self._other_arguments(row) if each is None else each for row, each in enumerate(found)]

    def _other_head(self, row: int) -> _Head:
        task = self._delayed_task(row)
        return _Head(valid(task.name), valid(task.eta), None if task.name is None else int32(task.retries))

    def _other_arguments(self, row: int) -> Arguments:
        task = self._delayed_task(row)
        return as_json(task.args), as_json(task.kwargs)

    def _delayed_task(self, row: int) -> DelayedTask:
        due_ms = float(self._dues[row])
        return DelayedTask(Waiting(self._part.queue, as_text(self._ids[row]), due_ms, 0, self._bodies[row]))
