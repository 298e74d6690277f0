"""Waiting messages as an Arrow batch: only the columns that are wanted, and no object a row."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.read.arguments import Texts, as_json, payloads
from celery_ext.spark.read.parse import moments, read_heads, texts, valid
from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.connection.text import as_text
from kombu_delayq.store.formats import redisson
from kombu_delayq.store.formats.hash import body_of, id_of, is_marked, length_of, may_be_twin, priority_of
from kombu_delayq.store.types import Waiting

_JSON = "application/json"


class Rows:
    """Some waiting messages of one queue. Lists have one entry a message.

    Args:
        queue: Its name.
        members: Index members.
        dues: Due times in ms since the epoch, as Redis writes them.
        lengths: Bytes that are stored of each message, 0 for one that is lost.
        stored: What is stored of each, empty for one that is lost; None for one that was not read.
    """

    def __init__(
        self,
        queue: str,
        members: Sequence[bytes],
        dues: Sequence[bytes],
        lengths: Sequence[int],
        stored: Sequence[bytes | None],
    ) -> None:
        self._queue = queue
        self._members = members
        self._dues = dues
        self._lengths = lengths
        self._stored = stored

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Returns the columns that a schema names, in any case."""
        columns = [getattr(self, f"_{name.lower()}_column")() for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _queue_column(self) -> pa.Array:
        return pa.repeat(pa.scalar(valid(self._queue), pa.string()), len(self._members))

    def _task_column(self) -> pa.Array:
        return self._mended("task", lambda task: task.name)

    def _task_id_column(self) -> pa.Array:
        ids = list(map(id_of, self._members)) if self._any_marked else list(self._members)
        for at in (at for at, each in enumerate(ids) if may_be_twin(each)):
            ids[at] = self._delayed_task(at).id.encode(errors="surrogateescape")
        return texts(ids)

    def _due_column(self) -> pa.Array:
        return moments(self._dues)

    def _eta_column(self) -> pa.Array:
        return self._mended("eta", lambda task: task.eta)

    def _priority_column(self) -> pa.Array:
        if self._plain:
            return pa.repeat(pa.scalar(0, pa.int32()), len(self._members))
        return pa.array([priority_of(each) if each else None for each in self._stored], pa.int32())

    def _retries_column(self) -> pa.Array:
        # Of a task that does not tell, as of one that was never retried, it is 0.
        retries = pc.if_else(pc.is_valid(self._heads["task"]), pc.fill_null(self._heads["retries"], 0), None)
        return self._replaced(retries, _retries)

    def _args_column(self) -> pa.Array:
        return texts(self._payloads[0])

    def _kwargs_column(self) -> pa.Array:
        return texts(self._payloads[1])

    def _size_column(self) -> pa.Array:
        if not self._any_marked and 0 not in self._lengths:
            return pa.array(self._lengths, pa.int32())
        sizes = [length_of(*each) if each[1] else None for each in zip(self._members, self._lengths, strict=True)]
        return pa.array(sizes, pa.int32())

    def _raw_column(self) -> pa.Array:
        return pa.array(self._bodies, pa.binary())

    @cached_property
    def _any_marked(self) -> bool:
        return any(map(is_marked, self._members))

    @cached_property
    def _plain(self) -> bool:
        """Whether what is stored are the bodies, without marks, and none is lost: as with most messages."""
        return all(self._stored) and not any(map(is_marked, filter(None, self._stored)))

    @cached_property
    def _bodies(self) -> Sequence[bytes | None]:
        if self._plain:
            return self._stored
        return [(body_of(each) if is_marked(each) else each) if each else None for each in self._stored]

    @cached_property
    def _heads(self) -> pa.Table:
        return read_heads(self._bodies)

    @cached_property
    def _odd(self) -> list[int]:
        """Which messages are read one by one: no tasks of protocol 2, damaged, or beside a damaged one."""
        unknown = pc.indices_nonzero(pc.is_null(self._heads["task"])).to_pylist()
        return [at for at in unknown if self._bodies[at]]

    @cached_property
    def _payloads(self) -> tuple[Texts, Texts]:
        heads = self._heads
        plain = pc.and_(pc.equal(heads["content-type"], _JSON), pc.equal(heads["body_encoding"], "base64"))
        plain = pc.and_(plain, pc.equal(pc.fill_null(heads["content-encoding"], "utf-8"), "utf-8"))
        plain = pc.fill_null(pc.and_(plain, pc.is_null(heads["compression"])), False)
        args, kwargs = payloads(pc.if_else(plain, heads["body"], None).to_pylist())
        others = pc.indices_nonzero(pc.and_not(pc.is_valid(heads["task"]), plain)).to_pylist()
        for at in {*others, *self._odd}:
            task = self._delayed_task(at)
            args[at], kwargs[at] = as_json(task.args), as_json(task.kwargs)
        return args, kwargs

    def _mended(self, name: str, of: Callable[[DelayedTask], str | None]) -> pa.Array:
        return self._replaced(self._heads[name], lambda task: valid(of(task)))

    def _replaced(self, column: pa.ChunkedArray, of: Callable[[DelayedTask], Any]) -> pa.Array:
        """Puts what the messages that are read one by one say into a column."""
        column = column.combine_chunks()
        if not self._odd:
            return column
        odd = set(self._odd)
        mask = pa.array([at in odd for at in range(len(column))])
        values = pa.array([of(self._delayed_task(at)) for at in self._odd], column.type)
        return pc.replace_with_mask(column, mask, values)

    def _delayed_task(self, at: int) -> DelayedTask:
        found = self._tasks.get(at)
        if found is None:
            waiting = Waiting(self._queue, self._kept_id(at), float(self._dues[at]), 0, self._bodies[at])
            found = DelayedTask(waiting)
            self._tasks[at] = found
        return found

    def _kept_id(self, at: int) -> str:
        return as_text(id_of(self._members[at]))

    @cached_property
    def _tasks(self) -> dict[int, DelayedTask]:
        return {}


class RedissonRows(Rows):
    """Some waiting messages of one queue in Redisson's form. Lists have one entry a message.

    Args:
        queue: Its name.
        marks: Of the entries, see ``kombu_delayq.store.formats.redisson``.
        dues: Due times in ms since the epoch, as Redis writes them.
        lengths: Of the messages in bytes, 0 for one that is lost.
        bodies: Of each the message, empty for one that is lost; None for one that was not read.
        ids: Under which they are stored; None where they are not wanted.
    """

    def __init__(
        self,
        queue: str,
        marks: Sequence[bytes],
        dues: Sequence[bytes],
        lengths: Sequence[int],
        bodies: Sequence[bytes | None],
        ids: Sequence[bytes] | None,
    ) -> None:
        super().__init__(queue, marks, dues, lengths, bodies)
        self._ids = ids or ()

    def _task_id_column(self) -> pa.Array:
        return texts(self._ids)

    def _priority_column(self) -> pa.Array:
        found = zip(self._members, self._bodies, strict=True)
        return pa.array([redisson.priority_of(mark, body) if body else None for mark, body in found], pa.int32())

    def _size_column(self) -> pa.Array:
        return pa.array([length or None for length in self._lengths], pa.int32())

    @cached_property
    def _bodies(self) -> Sequence[bytes | None]:
        return [body or None for body in self._stored]

    def _kept_id(self, at: int) -> str:
        return ""  # asked for no column: ids come from the store


def _retries(task: DelayedTask) -> int | None:
    return int(task.retries) if task.name is not None and abs(task.retries) < 2**31 else None
