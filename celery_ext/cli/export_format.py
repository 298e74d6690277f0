"""Writes and reads the lines of an export: a header, a line for each message, and a closing line with their number.

Each line is JSON. Its text is the bytes in Redis, decoded as UTF-8. A byte that is no UTF-8 becomes a single surrogate,
U+DC80 to U+DCFF, as Python's error handler ``surrogateescape`` writes it, so that an import restores every byte.
"""

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery_ext.waiting import DelayedTask
from kombu_delayq.errors import quoted
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


def parse(line: bytes) -> Exported | int | None:
    """Reads a line.

    Returns:
        A message; the number of messages, of a closing line; None for a header.

    Raises:
        BadLine: The line is not a line of an export; the error says why.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"it is no JSON, or cut off: {error}") from None
    if not isinstance(fields, dict):
        raise BadLine(f"it is no JSON object, but {quoted(fields)}")
    if "format" in fields:
        return _about_export(fields)
    for name, kind in (("queue", str), ("id", str), ("due_ms", (int, float)), ("priority", int), ("body", str)):
        if name not in fields:
            raise BadLine(f"it has no {name!r}")
        if not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            # A body has the arguments of a task, which must not get into logs.
            what = type(fields[name]).__name__ if name == "body" else quoted(fields[name])
            raise BadLine(f"{name} is {what}")
    return Exported(_queue(fields["queue"]), _offer(fields))


def _about_export(fields: dict[str, Any]) -> int | None:
    if fields["format"] != FORMAT:
        raise BadLine(f"the format is {quoted(fields['format'])}, not {FORMAT!r}")
    if "messages" in fields:
        count = fields["messages"]
        if not isinstance(count, int) or isinstance(count, bool):
            raise BadLine(f"messages is {quoted(count)}")
        return count
    if fields.get("version") != VERSION:
        raise BadLine(f"the version of the format is {quoted(fields.get('version'))}, and {VERSION} is known here")
    return None


def _queue(queue: str) -> str:
    try:
        queue.encode()
    except UnicodeEncodeError as error:
        raise BadLine(f"queue is {quoted(queue)}: {error}") from None
    if not queue:
        raise BadLine("queue is empty")
    return queue


def _offer(fields: dict[str, Any]) -> Offer:
    due_ms, priority = fields["due_ms"], fields["priority"]
    if not abs(due_ms) <= sys.float_info.max:  # a whole number may be greater than any float; NaN is not
        raise BadLine(f"due_ms is {quoted(due_ms)}")
    if not 0 <= priority <= 9:
        raise BadLine(f"priority is {priority}, and may be 0 to 9")
    _check_iso(fields.get("due"), due_ms)
    try:
        identity, body = (fields[name].encode(errors="surrogateescape") for name in ("id", "body"))
    except UnicodeEncodeError as error:
        raise BadLine(f"its text stands for no bytes: {error}") from None
    fault = fault_of(body)
    if fault is not None:
        raise BadLine(f"the body: {fault}")
    return Offer(identity, repr(float(due_ms)), priority, body)


def _check_iso(due: object, due_ms: float) -> None:
    """Raises BadLine if ``due`` and ``due_ms`` differ, because somebody changed only one of them."""
    if due is None:
        return
    try:
        moment = datetime.fromisoformat(str(due))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadLine(f"due is {quoted(due)}, which is no time in ISO 8601 with a zone")
    if abs(ms_of(moment) - due_ms) > 1:
        raise BadLine(f"due and due_ms name different times: {due} and {iso_of(due_ms) or due_ms}")


def _own_id(message: Waiting) -> str:
    """Returns the id of a message without the suffix that it has in the store if another message has the same id."""
    shared = shared_id(message.id)
    return shared if shared is not None and shared == DelayedTask(message).id else message.id
