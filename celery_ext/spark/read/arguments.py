"""The arguments of tasks as JSON text, cut out of the bodies of their messages."""

import json
import re
from binascii import Error, a2b_base64
from collections.abc import Iterable, Sequence
from typing import Any

from kombu.utils.json import dumps

from celery_ext.spark.read.parse import are_objects

#: JSON texts, one a message, None where there is none to be read.
Texts = list[bytes | None]

#: How the body of a task without positional arguments begins, and how that of one ends which nothing follows.
#: Source: celery.app.amqp.AMQP.as_task_v2
_NO_ARGS, _NO_EMBED = b"[[], {", b', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
_SPACE = re.compile(r"[ \t\r\n]*")
_read = json.JSONDecoder().raw_decode


def payloads(contents: Iterable[str | None]) -> tuple[Texts, Texts]:
    """Returns the positional and the keyword arguments in bodies of protocol 2: JSON, in base64.

    Args:
        contents: The bodies; None where there is none.
    """
    raws = [_decoded(content) for content in contents]
    args: Texts = [None] * len(raws)
    kwargs: Texts = [None] * len(raws)
    quick = []
    for at, raw in enumerate(raws):
        # Most bodies are of this form, and need not be parsed one by one to find where the arguments end.
        if raw.startswith(_NO_ARGS) and raw.endswith(_NO_EMBED):
            args[at], kwargs[at] = b"[]", raw[5 : -len(_NO_EMBED)]
            quick.append(at)
        elif raw:
            args[at], kwargs[at] = _cut(raw)
    if not are_objects([kwargs[at] or b"" for at in quick]):
        for at in quick:
            args[at], kwargs[at] = _cut(raws[at])
    return args, kwargs


def as_json(arguments: Any) -> bytes | None:
    """Returns arguments as JSON text; None for None, and for what has no JSON."""
    if arguments is None:
        return None
    try:
        text: str = dumps(arguments)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return text.encode(errors="replace")


def _decoded(content: str | None) -> bytes:
    try:
        return a2b_base64(content or "")
    except (Error, ValueError):
        return b""


def _cut(raw: bytes) -> tuple[bytes | None, bytes | None]:
    """Cuts the first two of three elements out of a JSON array."""
    try:
        text = raw.decode()
        parts = list(_elements(text))
    except (ValueError, RecursionError):
        return None, None
    if len(parts) != 3:
        return None, None
    args, kwargs = (None if part == "null" else part.encode() for part in parts[:2])
    return args, kwargs


def _elements(text: str) -> Sequence[str]:
    """Returns the elements of a JSON array as text.

    Raises:
        ValueError: It is none.
    """
    found, mark, at = [], "[", _skip(text, 0)
    while text[at : at + 1] == mark:
        begin = _skip(text, at + 1)
        _, end = _read(text, begin)
        found.append(text[begin:end])
        mark, at = ",", _skip(text, end)
    if text[at : at + 1] != "]" or _skip(text, at + 1) != len(text):
        raise ValueError("no JSON array")
    return found


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at
