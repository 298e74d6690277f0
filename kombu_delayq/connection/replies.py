"""Reads replies of Redis."""

from collections.abc import Iterable, Sequence
from typing import Any


def checked(replies: Iterable[Any]) -> list[Any]:
    """Returns replies. Raises the first error among them."""
    found = list(replies)
    for reply in found:
        if isinstance(reply, Exception):
            raise reply
    return found


def time_ms(time: Sequence[Any]) -> float:
    """Returns a reply to ``TIME``, seconds and microseconds, in ms since the epoch."""
    seconds, microseconds = time
    return float(seconds) * 1000 + float(microseconds) / 1000
