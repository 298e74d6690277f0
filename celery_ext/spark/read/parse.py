"""What Redis has as bytes, as Arrow arrays: the fields of messages, their due times, and texts."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

_TEXT = pa.string()
_SCHEMA = pa.schema(
    {
        "body": _TEXT,
        "content-type": _TEXT,
        "content-encoding": _TEXT,
        "headers": pa.struct({"task": _TEXT, "eta": _TEXT, "retries": pa.int32(), "compression": _TEXT}),
        "properties": pa.struct({"body_encoding": _TEXT}),
    }
)
#: A schema of which no JSON has a field: what is read by it is checked, and dropped.
_NOTHING = pa.schema({"\0": pa.bool_()})
#: So many messages are not halved any more to find the one that cannot be read.
_FEW = 8
#: The first and the last time, in µs since the epoch, that are a datetime in every time zone.
_FIRST_US, _LAST_US = -62_135_510_400e6, 253_402_214_400e6


def read_heads(bodies: Sequence[bytes | None]) -> pa.Table:
    """Reads messages.

    Args:
        bodies: One at least.

    Returns:
        A row for each, with the columns ``task``, ``eta``, ``retries``, ``compression``, ``body_encoding``, ``body``,
        ``content-type`` and ``content-encoding``. All are null for a message that is missing, that is no JSON object,
        or that has something of another type there; and so may they be for messages beside such a one.
    """
    lines = [line or b"" for line in bodies]
    table = _parsed(lines, _SCHEMA)
    if table is None:
        table = _parsed_in_halves([line if _are_lines([line], line) else b"{}" for line in lines])
    table = table.combine_chunks().flatten()
    return table.rename_columns([name.rpartition(".")[2] for name in table.column_names])


def are_objects(lines: Sequence[bytes]) -> bool:
    """Whether each line is a JSON object in UTF-8, on one line."""
    return not lines or _parsed(lines, _NOTHING) is not None


def moments(times_ms: Sequence[bytes]) -> pa.Array:
    """Returns times in ms since the epoch as timestamps; null for those that no datetime can name."""
    times_us = pc.round(pc.multiply(pa.array(map(float, times_ms), pa.float64()), 1000.0))
    known = pc.and_(pc.greater_equal(times_us, _FIRST_US), pc.less_equal(times_us, _LAST_US))
    return pc.if_else(known, times_us, None).cast(pa.int64(), safe=False).cast(pa.timestamp("us", tz="UTC"))


def texts(found: Sequence[bytes | None]) -> pa.Array:
    """Returns texts; in those that are no UTF-8, with the replacement character for what is not."""
    array = pa.array(found, pa.binary())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if each is None else each.decode(errors="replace") for each in found], pa.string())


def valid(text: str | None) -> str | None:
    """Returns a text with a question mark for what has no UTF-8."""
    return None if text is None else text.encode(errors="replace").decode()


def _parsed_in_halves(lines: Sequence[bytes]) -> pa.Table:
    """Returns lines as a table, with null for those that cannot be read and a few beside them."""
    table = _parsed(lines, _SCHEMA)
    if table is not None:
        return table
    if len(lines) <= _FEW:
        return _parsed([b"{}"] * len(lines), _SCHEMA)
    middle = len(lines) // 2
    return pa.concat_tables([_parsed_in_halves(lines[:middle]), _parsed_in_halves(lines[middle:])])


def _parsed(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table | None:
    """Returns lines, each a JSON object, as a table; None if one of them is something else."""
    text = b"\n".join(lines)
    if not _are_lines(lines, text):
        return None
    try:
        if not text.isascii():
            text.decode()
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            # One block: what is longer than a block could not be read.
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    # A line may have two objects.
    return table if table.num_rows == len(lines) else None


def _are_lines(lines: Sequence[bytes], text: bytes) -> bool:
    """Whether lines, joined to a text, are one each, from ``{`` to ``}``, so that no object reaches into the next."""
    return text.count(b"\n") == len(lines) - 1 and {line[:1] + line[-1:] for line in lines} == {b"{}"}
