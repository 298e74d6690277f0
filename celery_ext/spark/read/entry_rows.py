"""Waiting messages of Redisson's form as an Arrow batch."""

from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa

from celery_ext.spark.read.arrays import texts
from celery_ext.spark.read.batch import Rows
from kombu_delayq.store.formats.redisson import priority_of


class EntryRows(Rows):
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
        return pa.array([priority_of(mark, body) if body else None for mark, body in found], pa.int32())

    def _size_column(self) -> pa.Array:
        return pa.array([length or None for length in self._lengths], pa.int32())

    @cached_property
    def _bodies(self) -> Sequence[bytes | None]:
        return [body or None for body in self._stored]

    def _kept_id(self, at: int) -> str:
        return ""  # asked for no column: ids come from the store
