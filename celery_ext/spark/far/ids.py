"""Task ids in the far tier: 16 bytes for a UUID, else a text."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def id_columns(ids: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Returns the columns ``uuid`` and ``id`` of task ids."""
    raws = [bytes.fromhex(text.replace("-", "")) if is_uuid(text) else None for text in ids]
    others = [text if raw is None else None for text, raw in zip(ids, raws, strict=True)]
    return pa.array(raws, pa.binary(16)), pa.array(others, pa.string())


def is_uuid(task_id: str) -> bool:
    """Whether a task id is a UUID as Celery writes it."""
    return _UUID.fullmatch(task_id) is not None


def ids_of(rows: pa.Table) -> list[str]:
    """Returns the task ids of rows with the columns ``uuid`` and ``id``."""
    others = rows["id"].to_pylist() if rows["id"].null_count < len(rows) else None
    if others is not None:
        pairs = zip(rows["uuid"].to_pylist(), others, strict=True)
        return [_written(raw.hex()) if raw is not None else other for raw, other in pairs]
    column = rows["uuid"].combine_chunks()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    start = column.offset * 16
    digits = column.buffers()[1].to_pybytes()[start : start + 16 * len(column)].hex()
    return [_written(digits[at : at + 32]) for at in range(0, len(digits), 32)]


def id_texts(rows: pa.Table) -> pa.Array:
    """Returns ``ids_of`` as an array."""
    return pa.array(ids_of(rows), pa.string())


def order_of(rows: pa.Table) -> pa.Array:
    """Returns in which order rows are kept, so that an id is found in few row groups."""
    return pc.sort_indices(rows, sort_keys=[("uuid", "ascending"), ("id", "ascending")])


def _written(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
