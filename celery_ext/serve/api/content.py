"""What a consumer in any language gets of a message."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from kombu_delayq.message import (
    Message,
    bodies,
    deliveries_of,
    headers_of,
    info_of,
    ms_of,
    priority_of,
    properties_of,
    task_id_of,
)

#: Content types whose bodies are decoded. To decode another one, such as a pickle, may run code.
READABLE = (bodies.JSON, bodies.YAML, bodies.MSGPACK, "text/plain")
#: Headers of a task that Celery writes for its own workers, or that are given as fields of their own.
_OWN = frozenset(("lang", "task", "id", "argsrepr", "kwargsrepr", "redelivered", "expires", "retries", "timelimit"))

#: Stands for content that is not decoded.
_UNREAD = object()


def content_of(message: Message, tag: str) -> dict[str, Any]:
    """Returns a message as a consumer over HTTP gets it. All values are JSON.

    Args:
        message: The message as it was in its queue.
        tag: By which the consumer acknowledges it.
    """
    headers = headers_of(message)
    head, content = headers, _decoded(message)
    if "task" not in headers and isinstance(content, dict) and {"task", "args"} <= content.keys():
        head = content  # a task of protocol 1
    found = {
        "tag": tag,
        "task": _text(head.get("task")),
        "id": task_id_of(head),
        "redelivered": bool(headers.get("redelivered") or info_of(message).get("redelivered")),
        "delivery_count": deliveries_of(message),
        "retries": head.get("retries") if isinstance(head.get("retries"), int) else 0,
        "priority": priority_of(message),
        "expires": _text(head.get("expires")),
        "expired": _is_past(head.get("expires")),
        "headers": {name: value for name, value in headers.items() if name not in _OWN and _is_json(value)},
        "reply_to": _text(properties_of(message).get("reply_to")),
        "content_type": _text(message.get("content-type")),
    }
    return found | _arguments(message, head, content)


def _arguments(message: Message, head: dict[str, Any], content: Any) -> dict[str, Any]:
    """Returns the arguments of a task, or the content of a plain message; else the body in base64."""
    if head is content:
        content = [content["args"], content.get("kwargs") or {}, {}]
    if content is not _UNREAD and "task" not in head:
        return {"content": content}
    match content:
        case [list() as args, dict() as kwargs, embed]:
            embedded = {name: value for name, value in embed.items() if value} if isinstance(embed, dict) else {}
            return {"args": args, "kwargs": kwargs, "embed": embedded}
    return {"content_encoding": _text(message.get("content-encoding")), "body": _encoded(message)}


def _decoded(message: Message) -> Any:
    """Returns the content of a body, or ``_UNREAD`` where it is not read, or is no JSON."""
    kind = message.get("content-type")
    if kind not in READABLE:
        return _UNREAD
    try:
        raw = bodies.unpacked(message)
        content = raw.decode() if kind == "text/plain" else bodies.loads(raw, kind)
    except Exception:  # each format fails in its own way
        return _UNREAD
    return content if _is_json(content) else _UNREAD


def _encoded(message: Message) -> str:
    """Returns a body in base64: as its serializer wrote it, or as it is in the message where that cannot be read."""
    try:
        raw = bodies.unpacked(message)
    except Exception:
        raw = str(message.get("body")).encode(errors="surrogateescape")
    return base64.b64encode(raw).decode()


def _is_json(value: object) -> bool:
    """Whether JSON of every language can carry a value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _text(found: object) -> str | None:
    return found if isinstance(found, str) else None


def _is_past(expires: object) -> bool:
    try:
        moment = datetime.fromisoformat(str(expires)) if expires else None
    except ValueError:
        return False
    return moment is not None and ms_of(moment) < datetime.now(UTC).timestamp() * 1000
