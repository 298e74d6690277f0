"""Messages of a bulk job as columns, with the bytes that go to Redis."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.write.texts import column, data_of, joined, offsets_of
from kombu_delayq.redis import Packed
from kombu_delayq.store import Offer

_NAMES = (*Offer._fields, "packed")


class OfferColumns(Sequence[Offer]):
    """Messages as columns: ``Offer`` has the fields of each.

    Args:
        batch: A column for each field, as text, and one with its arguments as they go to Redis.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    @classmethod
    def of(cls, ids: pa.Array, due: pa.Array, priority: pa.Array, bodies: pa.Array) -> OfferColumns:
        """Makes the column of arguments, and returns all. Source: RESP, see ``kombu_delayq.redis.packed``."""
        columns = (ids, due, priority, bodies)
        pieces = ["$"]
        for texts in columns:
            pieces += [pc.binary_length(texts).cast(pa.string()), "\r\n", texts, "\r\n$"]
        pieces[-1] = "\r\n"
        return cls(pa.RecordBatch.from_arrays([*columns, joined(pieces, len(ids))], _NAMES))

    @classmethod
    def of_offers(cls, offers: Sequence[Offer]) -> OfferColumns:
        """Returns messages that are not columns yet."""
        return cls.of(*(column(str(value) for value in values) for values in zip(*offers, strict=True)))

    @classmethod
    def together(cls, parts: Sequence[OfferColumns]) -> OfferColumns:
        """Returns the messages of all parts, of which there is one at least."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part._batch.columns for part in parts), strict=True)
        return cls(pa.RecordBatch.from_arrays([pa.concat_arrays(arrays) for arrays in columns], _NAMES))

    def take(self, rows: Sequence[int]) -> OfferColumns:
        """Returns the messages of some rows."""
        return OfferColumns(self._batch.take(pa.array(rows, pa.int64())))

    def packed(self) -> Packed:
        """Returns the arguments of all messages, as they go to Redis."""
        return Packed(len(Offer._fields) * len(self), bytes(data_of(self._batch.column("packed"))))

    @property
    def size(self) -> int:
        """Length of all bodies, in bytes."""
        offsets = offsets_of(self._batch.column("body"))
        return int(offsets[-1] - offsets[0])

    def first_with(self, size: int) -> int:
        """Returns how many messages, from the first on, have bodies of that size together; or how many there are."""
        offsets = offsets_of(self._batch.column("body"))
        return min(bisect_left(offsets, offsets[0] + size, 1), len(self))

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def __iter__(self) -> Iterator[Offer]:
        ids, due, priorities, bodies = (self._batch.column(name).to_pylist() for name in Offer._fields)
        return map(Offer, ids, due, map(int, priorities), bodies)

    @overload
    def __getitem__(self, at: int) -> Offer: ...
    @overload
    def __getitem__(self, at: slice) -> OfferColumns: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, _ = at.indices(len(self))
            return OfferColumns(self._batch.slice(start, max(stop - start, 0)))
        [found] = self[range(len(self))[at] :][:1]
        return found
