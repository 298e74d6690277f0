"""What Redis has as bytes, as Arrow arrays that Spark takes, whatever the bytes are."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

#: The first and the last time, in µs since the epoch, that are a datetime in every time zone.
_FIRST_US, _LAST_US = -62_135_510_400e6, 253_402_214_400e6


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
