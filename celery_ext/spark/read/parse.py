"""Makes Arrow arrays from the bytes in Redis: the fields of messages, their arguments, due times, and texts.

Arrow parses many messages at once, in less than half the time that ``kombu_delayq.message.fields.read`` takes. The
messages that Arrow cannot parse are read one by one.
"""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import json
import re
from binascii import Error, a2b_base64
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from kombu.utils.json import dumps

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
#: A schema without any field of a message: Arrow checks the JSON and keeps nothing of it.
_NOTHING = pa.schema({"\0": pa.bool_()})
#: A group of so few messages is not halved further in search of the one that Arrow cannot parse.
_FEW = 8
#: The first and the last time that a datetime can have in every time zone, in µs since the epoch.
_FIRST_US, _LAST_US = -62_135_510_400e6, 253_402_214_400e6


def parse_fields(messages: Sequence[bytes | None]) -> pa.Table:
    """Parses the fields of messages.

    Args:
        messages: JSON texts, at least one; None for a message that is missing.

    Returns:
        A row for each message, with the columns ``task``, ``eta``, ``retries``, ``compression``, ``body_encoding``,
        ``body``, ``content-type`` and ``content-encoding``. A row has only nulls when its message is missing, is not a
        JSON object, or has a field of another type. Good messages near a bad one may have nulls too.
    """
    lines = [message or b"" for message in messages]
    table = _parse(lines, _SCHEMA)
    if table is None:
        table = _parse_in_halves([line if _are_lines([line], line) else b"{}" for line in lines])
    table = table.combine_chunks().flatten()
    return table.rename_columns([name.rpartition(".")[2] for name in table.column_names])


def are_objects(lines: Sequence[bytes]) -> bool:
    """Whether each text is a JSON object in UTF-8 without a line break."""
    return not lines or _parse(lines, _NOTHING) is not None


def timestamps(times_ms: Sequence[bytes]) -> pa.Array:
    """Returns times in ms since the epoch as timestamps; null for a time that a datetime cannot have."""
    times_us = pc.round(pc.multiply(pa.array(map(float, times_ms), pa.float64()), 1000.0))
    known = pc.and_(pc.greater_equal(times_us, _FIRST_US), pc.less_equal(times_us, _LAST_US))
    return pc.if_else(known, times_us, None).cast(pa.int64(), safe=False).cast(pa.timestamp("us", tz="UTC"))


def texts(raw: Sequence[bytes | None]) -> pa.Array:
    """Returns bytes as texts. What is not UTF-8 becomes the replacement character."""
    array = pa.array(raw, pa.binary())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else text.decode(errors="replace") for text in raw], pa.string())


def valid(text: str | None) -> str | None:
    """Returns a text with a question mark in place of each lone surrogate, which has no UTF-8."""
    return None if text is None else text.encode(errors="replace").decode()


def _parse_in_halves(lines: Sequence[bytes]) -> pa.Table:
    """Parses lines. If Arrow cannot, each half is parsed alone; a few lines that it cannot parse become nulls."""
    table = _parse(lines, _SCHEMA)
    if table is not None:
        return table
    if len(lines) <= _FEW:
        return _parse([b"{}"] * len(lines), _SCHEMA)
    middle = len(lines) // 2
    return pa.concat_tables([_parse_in_halves(lines[:middle]), _parse_in_halves(lines[middle:])])


def _parse(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table | None:
    """Returns JSON objects, one a line, as a table; None if a line is anything else."""
    text = b"\n".join(lines)
    if not _are_lines(lines, text):
        return None
    try:
        if not text.isascii():
            text.decode()
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            # Arrow cannot parse a line that is longer than a block, so that all lines are one block.
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    # A line may have two objects.
    return table if table.num_rows == len(lines) else None


def _are_lines(lines: Sequence[bytes], text: bytes) -> bool:
    """Whether each line of the joined text goes from ``{`` to ``}``, so that no object spans two lines."""
    return text.count(b"\n") == len(lines) - 1 and {line[:1] + line[-1:] for line in lines} == {b"{}"}


#: JSON texts, one for each message; None for a message that has no text, or none that can be read.
Texts = list[bytes | None]

#: Begin of the body of a task without positional arguments.
_NO_ARGS = b"[[], {"
#: Ends of a body without callbacks and the like; the second one with the transport option ``compact``.
#: Source: celery.app.amqp.AMQP.as_task_v2
_NO_EMBED = (b', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]', b", {}]")
_SPACE = re.compile(r"[ \t\r\n]*")
_decode_first = json.JSONDecoder().raw_decode


def cut_arguments(bodies: Iterable[str | None]) -> tuple[Texts, Texts]:
    """Returns the positional and the keyword arguments of tasks of protocol 2.

    Args:
        bodies: Bodies of messages: JSON, as text or in base64; None where there is none.
    """
    raws = [_decoded(body) for body in bodies]
    args: Texts = [None] * len(raws)
    kwargs: Texts = [None] * len(raws)
    usual = []
    for index, raw in enumerate(raws):
        # Most bodies have this layout. Their ends are known, so that Arrow can check all of them at once.
        if raw.startswith(_NO_ARGS) and raw.endswith(_NO_EMBED):
            end = next(filter(raw.endswith, _NO_EMBED))
            args[index], kwargs[index] = b"[]", raw[5 : -len(end)]
            usual.append(index)
        elif raw:
            args[index], kwargs[index] = _cut(raw)
    if not are_objects([kwargs[index] or b"" for index in usual]):
        for index in usual:
            args[index], kwargs[index] = _cut(raws[index])
    return args, kwargs


def as_json(arguments: Any) -> bytes | None:
    """Returns arguments as JSON text; None for None, and for arguments that JSON cannot express."""
    if arguments is None:
        return None
    try:
        text: str = dumps(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return text.encode(errors="replace")


def _decoded(body: str | None) -> bytes:
    if body and body[0] == "[":  # text: base64 has no bracket
        return body.encode(errors="surrogatepass")
    try:
        return a2b_base64(body or "")
    except (Error, ValueError):
        return b""


def _cut(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """Returns the first two elements of a JSON array with three."""
    try:
        elements = _elements(raw.decode())
    except (ValueError, RecursionError):
        return None, None
    if len(elements) != 3:
        return None, None
    args, kwargs = (None if text == "null" else text.encode() for text in elements[:2])
    return args, kwargs


def _elements(text: str) -> Sequence[str]:
    """Returns the elements of a JSON array as texts.

    Raises:
        ValueError: The text is not a JSON array.
    """
    elements, separator, at = [], "[", _skip_space(text, 0)
    while text[at : at + 1] == separator:
        begin = _skip_space(text, at + 1)
        _, end = _decode_first(text, begin)
        elements.append(text[begin:end])
        separator, at = ",", _skip_space(text, end)
    if text[at : at + 1] != "]" or _skip_space(text, at + 1) != len(text):
        raise ValueError("not a JSON array")
    return elements


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
