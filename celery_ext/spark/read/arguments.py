"""The arguments of tasks as JSON text, cut out of the bodies of their messages."""

import json
import re
from binascii import Error, a2b_base64
from collections.abc import Iterable, Sequence
from typing import Any

from kombu.utils.json import dumps

from celery_ext.spark.read.parse import are_objects

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
