"""Writes and reads the lines of an export: a header, a line for each message, and a closing line with their number.

Each line is JSON. Its text is the bytes in Redis, decoded as UTF-8. A byte that is no UTF-8 becomes a single surrogate,
U+DC80 to U+DCFF, as Python's error handler ``surrogateescape`` writes it, so that an import restores every byte.
"""

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from celery_ext.waiting import DelayedTask
from kombu_delayq.message import fault_of, iso_of, ms_of
from kombu_delayq.store import Offer, Waiting, shared_id
from kombu_delayq.text import as_text

FORMAT, VERSION = "delayq-export", 1


class BadLine(ValueError):
    """A line is not a line of an export."""


@dataclass(frozen=True)
class Exported:
    """The line of a message, and the queue to which it goes."""

    queue: str
    offer: Offer


def header_line(broker: str, now: datetime) -> str:
    """Returns the first line of an export that is written at ``now``; ``broker`` is a URL without its password."""
    return json.dumps({"format": FORMAT, "version": VERSION, "at": now.isoformat(), "broker": broker})


def closing_line(messages: int) -> str:
    """Returns the last line of an export with this number of messages."""
    return json.dumps({"format": FORMAT, "messages": messages})


def message_line(message: Waiting) -> str:
    """Returns the line of a message that has a body."""
    fields = {
        "queue": message.queue,
        "id": _own_id(message),
        "due": iso_of(message.due_ms),
        "due_ms": message.due_ms,
        "priority": message.priority,
        "body": as_text(message.body),
    }
    return json.dumps(fields)


class _Line(msgspec.Struct):
    """What the line of a message says."""

    queue: Annotated[str, Meta(min_length=1)]
    id: str
    due_ms: float
    priority: Annotated[int, Meta(ge=0, le=9)]
    body: str
    due: Annotated[datetime, Meta(tz=True)] | None = None


class _About(msgspec.Struct):
    """What a header, or a closing line, which has ``messages``, says."""

    format: Literal["delayq-export"]
    messages: int | None = None
    version: Literal[1] | None = None


def parse(line: bytes) -> Exported | int | None:
    """Reads a line.

    Returns:
        A message; the number of messages, of a closing line; None for a header.

    Raises:
        BadLine: The line is not a line of an export; the error says why, and has nothing of the body.
    """
    try:
        fields = json.loads(line)  # msgspec reads no single surrogates
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is no JSON, or cut off: {error}") from None
    try:
        if isinstance(fields, dict) and "format" in fields:
            return msgspec.convert(fields, _About).messages
        return _exported(msgspec.convert(fields, _Line))
    except (msgspec.ValidationError, OverflowError) as error:
        raise BadLine(str(error)) from None


def _exported(line: _Line) -> Exported:
    if not abs(line.due_ms) <= sys.float_info.max:  # it is infinite, or NaN
        raise BadLine(f"due_ms is {line.due_ms}")
    if line.due is not None and abs(ms_of(line.due) - line.due_ms) > 1:  # somebody has changed only one of them
        raise BadLine(f"due and due_ms name different times: {line.due} and {iso_of(line.due_ms) or line.due_ms}")
    try:
        line.queue.encode()
        identity, body = (text.encode(errors="surrogateescape") for text in (line.id, line.body))
    except UnicodeEncodeError as error:
        raise BadLine(f"its text stands for no bytes: {error.reason}") from None
    fault = fault_of(body)
    if fault is not None:
        raise BadLine(f"the body: {fault}")
    return Exported(line.queue, Offer(identity, repr(line.due_ms), line.priority, body))


def _own_id(message: Waiting) -> str:
    """Returns the id of a message without the suffix that it has in the store if another message has the same id."""
    shared = shared_id(message.id)
    return shared if shared is not None and shared == DelayedTask(message).id else message.id
