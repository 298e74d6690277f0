"""Waiting messages as an Arrow batch: only the columns that are wanted, a column at a time."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.read.parse import Texts, as_json, cut_arguments, parse_fields, texts, timestamps, valid
from celery_ext.waiting import DelayedTask
from kombu_delayq.message.bodies import TEXT
from kombu_delayq.store import redisson_layout
from kombu_delayq.store.hash_layout import body_of, id_of, is_marked, length_of, may_be_duplicate, priority_of
from kombu_delayq.store.types import Waiting
from kombu_delayq.text import as_text

_JSON = "application/json"


class Rows:
    """Some waiting messages of one queue. Each list has one entry for each message.

    Args:
        queue: Name of the queue.
        members: Index members.
        dues: Due times in ms since the epoch, as Redis writes them.
        lengths: Bytes of each stored message, 0 for a message that is lost.
        stored: Values of the layout: empty for a message that is lost, None for one that was not read.
        layout: Layout in which the messages are kept.
        ids: Ids under which the messages are stored, where the layout has them apart from its members, and a column
            needs them.

    Attributes:
        has_ids_apart: Whether ids stand elsewhere than in the members.
    """

    has_ids_apart = False

    def __init__(
        self,
        queue: str,
        members: Sequence[bytes],
        dues: Sequence[bytes],
        lengths: Sequence[int],
        stored: Sequence[bytes | None],
        layout: str = "hash",
        ids: Sequence[bytes] = (),
    ) -> None:
        self._queue = queue
        self._members = members
        self._dues = dues
        self._lengths = lengths
        self._stored = stored
        self._layout = layout
        self._ids = ids

    @staticmethod
    def kept(members: Sequence[bytes]) -> Sequence[bytes]:
        """Returns what rows need of index members."""
        return members

    @staticmethod
    def may_share_ids(members: Sequence[bytes]) -> bool:
        """Whether a message may be stored under another id than its own, because another message has that."""
        return any(may_be_duplicate(id_of(member)) for member in members)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Returns the columns of a schema. Their names may be in any case."""
        columns = [getattr(self, f"_{name.lower()}_column")() for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _queue_column(self) -> pa.Array:
        return pa.repeat(pa.scalar(valid(self._queue), pa.string()), len(self._members))

    def _layout_column(self) -> pa.Array:
        return pa.repeat(pa.scalar(self._layout, pa.string()), len(self._members))

    def _task_column(self) -> pa.Array:
        return self._text_field("task", lambda task: task.name)

    def _task_id_column(self) -> pa.Array:
        ids = list(map(id_of, self._members)) if self._any_marked else list(self._members)
        for row, stored_id in enumerate(ids):
            if may_be_duplicate(stored_id):
                ids[row] = self._delayed_task(row).id.encode(errors="surrogateescape")
        return texts(ids)

    def _due_column(self) -> pa.Array:
        return timestamps(self._dues)

    def _eta_column(self) -> pa.Array:
        return self._text_field("eta", lambda task: task.eta)

    def _priority_column(self) -> pa.Array:
        if self._plain:
            return pa.repeat(pa.scalar(0, pa.int32()), len(self._members))
        return pa.array([priority_of(value) if value else None for value in self._stored], pa.int32())

    def _retries_column(self) -> pa.Array:
        # A task without the header was never retried.
        retries = pc.if_else(pc.is_valid(self._fields["task"]), pc.fill_null(self._fields["retries"], 0), None)
        return self._with_odd(retries, _retries)

    def _args_column(self) -> pa.Array:
        return texts(self._arguments[0])

    def _kwargs_column(self) -> pa.Array:
        return texts(self._arguments[1])

    def _size_column(self) -> pa.Array:
        if not self._any_marked and 0 not in self._lengths:
            return pa.array(self._lengths, pa.int32())
        stored = zip(self._members, self._lengths, strict=True)
        sizes = [length_of(member, length) if length else None for member, length in stored]
        return pa.array(sizes, pa.int32())

    def _raw_column(self) -> pa.Array:
        return pa.array(self._bodies, pa.binary())

    @cached_property
    def _any_marked(self) -> bool:
        return any(map(is_marked, self._members))

    @cached_property
    def _plain(self) -> bool:
        """Whether all values are bodies without marks, and no message is lost. Most messages are so."""
        return all(self._stored) and not any(map(is_marked, filter(None, self._stored)))

    @cached_property
    def _bodies(self) -> Sequence[bytes | None]:
        if self._plain:
            return self._stored
        return [body_of(value) if value else None for value in self._stored]

    @cached_property
    def _fields(self) -> pa.Table:
        return parse_fields(self._bodies)

    @cached_property
    def _odd(self) -> list[int]:
        """Rows that are read one by one: messages in another form than protocol 2, damaged ones, and some near them."""
        unknown = pc.indices_nonzero(pc.is_null(self._fields["task"])).to_pylist()
        return [row for row in unknown if self._bodies[row]]

    @cached_property
    def _arguments(self) -> tuple[Texts, Texts]:
        fields = self._fields
        is_read = pc.is_in(fields["body_encoding"], pa.array(["base64", TEXT]))
        is_json = pc.and_(pc.equal(fields["content-type"], _JSON), is_read)
        is_json = pc.and_(is_json, pc.equal(pc.fill_null(fields["content-encoding"], "utf-8"), "utf-8"))
        is_json = pc.fill_null(pc.and_(is_json, pc.is_null(fields["compression"])), False)
        args, kwargs = cut_arguments(pc.if_else(is_json, fields["body"], None).to_pylist())
        others = pc.indices_nonzero(pc.and_not(pc.is_valid(fields["task"]), is_json)).to_pylist()
        for row in {*others, *self._odd}:
            task = self._delayed_task(row)
            args[row], kwargs[row] = as_json(task.args), as_json(task.kwargs)
        return args, kwargs

    def _text_field(self, name: str, of_task: Callable[[DelayedTask], str | None]) -> pa.Array:
        return self._with_odd(self._fields[name], lambda task: valid(of_task(task)))

    def _with_odd(self, column: pa.ChunkedArray, of_task: Callable[[DelayedTask], Any]) -> pa.Array:
        """Returns a column in which the odd rows have the values that they are read to have."""
        column = column.combine_chunks()
        if not self._odd:
            return column
        odd = set(self._odd)
        mask = pa.array([row in odd for row in range(len(column))])
        values = pa.array([of_task(self._delayed_task(row)) for row in self._odd], column.type)
        return pc.replace_with_mask(column, mask, values)

    def _delayed_task(self, row: int) -> DelayedTask:
        task = self._tasks.get(row)
        if task is None:
            message = Waiting(self._queue, self._stored_id(row), float(self._dues[row]), 0, self._bodies[row])
            task = self._tasks[row] = DelayedTask(message)
        return task

    def _stored_id(self, row: int) -> str:
        return as_text(id_of(self._members[row]))

    @cached_property
    def _tasks(self) -> dict[int, DelayedTask]:
        return {}


class RedissonRows(Rows):
    """Some waiting messages of one queue in Redisson's layout. Its members are marks, and its values messages."""

    has_ids_apart = True

    @staticmethod
    def kept(members: Sequence[bytes]) -> Sequence[bytes]:
        """Returns the marks: a member is an entry, which has the message in it."""
        return list(map(redisson_layout.mark_of, members))

    @staticmethod
    def may_share_ids(members: Sequence[bytes]) -> bool:  # ids are apart
        """Whether a message may be stored under another id than its own: never."""
        return False

    def _task_id_column(self) -> pa.Array:
        return texts(self._ids)

    def _priority_column(self) -> pa.Array:
        entries = zip(self._members, self._bodies, strict=True)
        return pa.array(
            [redisson_layout.priority_of(mark, body) if body else None for mark, body in entries], pa.int32()
        )

    def _size_column(self) -> pa.Array:
        return pa.array([length or None for length in self._lengths], pa.int32())

    @cached_property
    def _bodies(self) -> Sequence[bytes | None]:
        return [body or None for body in self._stored]

    def _stored_id(self, row: int) -> str:
        return ""  # No column needs it here: the column of ids comes from the store.


def _retries(task: DelayedTask) -> int | None:
    return int(task.retries) if task.name is not None and abs(task.retries) < 2**31 else None


def rows_of_layout(layout: str) -> type[Rows]:
    """Returns how messages of a layout become rows."""
    return RedissonRows if layout == "redisson" else Rows  # rows of a journal are as those of the layout hash
