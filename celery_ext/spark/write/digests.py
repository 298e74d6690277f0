"""What the ids and the delivery tags of a batch are made from: the SHA-256 of each row, a column at a time."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.spark.write.texts import Pieces, bytes_of, joined, of_length

#: Bytes of a digest.
SIZE = 32
#: Where the hex digits stand in a UUID as text.
_DIGITS = [at for at in range(36) if at not in (8, 13, 18, 23)]


def digests_of(pieces: Pieces, count: int) -> pa.Array:
    """Returns the digests of the texts of a column, 32 bytes each. For the arguments see ``joined``."""
    return column_of([sha256(text).digest() for text in bytes_of(joined(pieces, count))])


def column_of(digests: Iterable[bytes]) -> pa.Array:
    """Returns digests as a column."""
    data = b"".join(digests)
    return pa.Array.from_buffers(pa.binary(SIZE), len(data) // SIZE, [None, pa.py_buffer(data)])


def uuids_of(digests: pa.Array) -> pa.StringArray:
    """Returns ``task_ids.uuid_of`` of each digest."""
    return _written("-" * 36, _DIGITS, 0, digests)


def tags_of(digests: pa.Array, salt: str) -> pa.StringArray:
    """Returns delivery tags. They differ between jobs, and are the same in every attempt.

    Args:
        digests: Digests of the tasks.
        salt: 8 hex digits that stand for the job.
    """
    return _written(salt.ljust(36, "-"), _DIGITS[8:], 32, digests)


def parts_of(digests: pa.Array) -> pa.Array:
    """Returns a number from 0 to 1 for each digest. Over many tasks the numbers are evenly distributed."""
    numbers = array("Q", bytes(_data_of(digests)))[2::4]
    if sys.byteorder == "little":
        numbers.byteswap()
    found = pa.Array.from_buffers(pa.uint64(), len(numbers), [None, pa.py_buffer(numbers)])
    return pc.divide(pc.shift_right(found, pa.scalar(12, pa.uint64())).cast(pa.float64()), 2.0**52)


def _written(form: str, places: list[int], first: int, digests: pa.Array) -> pa.StringArray:
    """Writes hex digits of each digest, from the place ``first`` on, into places of a text."""
    digits, length = _data_of(digests).hex().encode(), len(form)
    text = bytearray(form.encode() * len(digests))
    for number, at in enumerate(places, first):  # one digit of all rows in a step
        text[at::length] = digits[number :: 2 * SIZE]
    return of_length(length, text)


def _data_of(digests: pa.Array) -> memoryview:
    first = digests.offset * SIZE
    return memoryview(digests.buffers()[1])[first : first + len(digests) * SIZE]
