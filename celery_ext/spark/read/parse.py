"""Reads the fields and the arguments of waiting messages, and makes Arrow arrays of due times and of texts.

Most messages are ordinary tasks, which msgspec reads in a fraction of the time that ``DelayedTask`` takes for any.
"""

from binascii import a2b_base64
from collections.abc import Sequence
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from kombu.utils.json import dumps
from msgspec import Meta, MsgspecError, Raw, Struct
from msgspec.json import Decoder

from kombu_delayq.message import JSON

#: The first and the last time that a datetime can have in every time zone, in µs since the epoch.
_FIRST_US, _LAST_US = -62_135_510_400e6, 253_402_214_400e6
#: What msgspec raises for other messages, and for damaged ones.
_OTHER = (MsgspecError, ValueError, RecursionError)
#: Positional and keyword arguments as JSON texts, each None where it is missing or cannot be read.
Arguments = tuple[bytes | None, bytes | None]


class Headers(Struct):
    """The headers of an ordinary task, as far as columns have them."""

    task: str
    eta: str | None = None
    retries: Annotated[int, Meta(gt=-(2**31), lt=2**31)] = 0
    compression: str | None = None


class _Properties(Struct):
    body_encoding: str | None = None


class OrdinaryTask(Struct, rename={"content_type": "content-type"}):
    """The message of a task of protocol 2, as far as columns have it."""

    headers: Headers
    properties: _Properties
    body: str
    content_type: str

    def arguments(self) -> Arguments | None:
        """Returns the arguments as they stand in the body; None where they are not in JSON, or damaged."""
        if self.content_type != JSON or self.headers.compression is not None:
            return None
        try:
            raw = a2b_base64(self.body) if self.properties.body_encoding == "base64" else self.body.encode()
            if not raw.isascii():
                raw.decode()
            args, kwargs, _ = _cut(raw)
        except _OTHER:
            return None
        return _text(args), _text(kwargs)


_read = Decoder(OrdinaryTask).decode
_cut = Decoder(tuple[Raw, Raw, Raw]).decode


def ordinary(message: bytes | None) -> OrdinaryTask | None:
    """Reads a message; None for one that is no ordinary task, or is missing."""
    try:
        return _read(message or b"")
    except _OTHER:
        return None


def as_json(arguments: Any) -> bytes | None:
    """Returns arguments as JSON text; None for None, and for arguments that JSON cannot express."""
    if arguments is None:
        return None
    try:
        text: str = dumps(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return text.encode(errors="replace")


def int32(number: int) -> int | None:
    """Returns a number as a column of the type int has it; None for one that it cannot have."""
    return int(number) if abs(number) < 2**31 else None


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


def _text(raw: Raw) -> bytes | None:
    text = bytes(raw)
    return None if text == b"null" else text
