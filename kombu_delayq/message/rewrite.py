"""The same message with another eta, or with other properties."""

import json
from collections.abc import Mapping
from typing import Any

from kombu_delayq.errors import UnreadableMessage
from kombu_delayq.message import bodies
from kombu_delayq.message.due import content_of_protocol_1, eta_of, has_hidden_eta
from kombu_delayq.message.times import moment_of


def with_eta(raw: bytes, due_ms: float) -> bytes:
    """Returns a message with another eta; as it is if it has none.

    A consumer puts back a message that it gets before the eta in it.

    Args:
        raw: A message as it is pushed to its queue.
        due_ms: The new eta, ms since the epoch.

    Raises:
        UnreadableMessage: The eta cannot be replaced.
    """
    eta = moment_of(due_ms).isoformat()
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
        return json.dumps(message).encode()
    except Exception as error:  # each format of a body fails in its own way
        # The error of a format may quote parts of the body, which is not for logs.
        reason = str(error) if isinstance(error, bodies.UnreadableBody) else type(error).__name__
        raise UnreadableMessage(f"the eta of a message cannot be replaced: {reason}") from None


def with_properties(raw: bytes, changes: Mapping[str, Any], *, delivery_info: Mapping[str, Any] | None = None) -> bytes:
    """Returns a message with other properties.

    Args:
        raw: A message as it is pushed to its queue.
        changes: Properties by name; with None, the message is without one of this name.
        delivery_info: Fields that the property ``delivery_info`` gets beside its others.

    Returns:
        The message; as it is where no properties can be read, and where it has bytes that are no UTF-8, which would
        not come back. Its consumer reports what is wrong with it.
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
    if delivery_info is not None:
        info = properties.get("delivery_info")
        properties["delivery_info"] = {**(info if isinstance(info, dict) else {}), **delivery_info}
    return json.dumps(message).encode()
