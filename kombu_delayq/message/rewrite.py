"""The same message with another eta, or with other properties."""

import json
from collections.abc import Mapping
from typing import Any

from kombu_delayq.errors import UnreadableMessage
from kombu_delayq.message import bodies
from kombu_delayq.message.due import content_of_protocol_1, eta_of, has_hidden_eta, moment_of
from kombu_delayq.message.outgoing import stamp


def with_eta(raw: bytes, due_ms: float | None) -> bytes:
    """Returns a message with another eta; a message without an eta as it is.

    An operation that moves a message to another time changes its eta too: a consumer that gets a message before the eta
    puts it back.

    Args:
        raw: A message as it is pushed to its queue.
        due_ms: The new eta, ms since the epoch; None for none, of a message that goes to its queue now.

    Raises:
        UnreadableMessage: The eta cannot be replaced.
    """
    eta = None if due_ms is None else moment_of(due_ms).isoformat()
    try:
        message = json.loads(raw)
        headers = message.get("headers") or {}
        if not isinstance(headers, dict) or not isinstance(message.get("properties") or {}, dict):
            raise bodies.UnreadableBody("it is no message of kombu")
        if headers.get("eta"):
            headers["eta"] = eta
        elif "eta" not in headers and eta_of(message) is not None:
            message["body"] = bodies.dumps({**content_of_protocol_1(message), "eta": eta}, message)
        elif has_hidden_eta(message):
            raise bodies.UnreadableBody("it has one in a body that cannot be read")
        else:
            return raw
        if due_ms is None and message.get("properties"):
            message["properties"].update(stamp())
        return json.dumps(message).encode()
    except Exception as error:  # each format of a body fails in its own way
        # The error of a format may quote parts of the body, which is not for logs.
        reason = str(error) if isinstance(error, bodies.UnreadableBody) else type(error).__name__
        raise UnreadableMessage(f"the eta of a message cannot be replaced: {reason}") from None


def with_properties(
    raw: bytes,
    changes: Mapping[str, Any],
    *,
    delivery_info: Mapping[str, Any] | None = None,
    task_id: str | None = None,
) -> bytes:
    """Returns a message with other properties.

    Args:
        raw: A message as it is pushed to its queue.
        changes: New values of properties by name; None removes a property.
        delivery_info: Fields that are added to the property ``delivery_info``.
        task_id: New id of a task of protocol 2; None for the one that it has.

    Returns:
        The message with these properties. A message stays as it is if its properties cannot be read, or if it has bytes
        that are no UTF-8, which would be lost. Its consumer reports the fault.
    """
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    properties = message.get("properties") if isinstance(message, dict) else None
    if not properties or not isinstance(properties, dict):
        return raw
    for name, value in changes.items():
        if value is None:
            properties.pop(name, None)
        else:
            properties[name] = value
    if task_id is not None:
        message["headers"]["id"] = properties["correlation_id"] = task_id
    if delivery_info is not None:
        info = properties.get("delivery_info")
        properties["delivery_info"] = {**(info if isinstance(info, dict) else {}), **delivery_info}
    return json.dumps(message).encode()
