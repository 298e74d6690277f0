"""The marks of a message that was delivered before."""

from typing import Any

from kombu_delayq.message.fields import Message, headers_of, properties_of


def redelivered(message: Message, **properties: Any) -> Message:
    """Returns a message that is marked as delivered before, as kombu marks it.

    Args:
        message: The message; it stays as it is.
        properties: New values of its properties.

    Source: kombu.transport.redis.Channel._do_restore_message
    """
    old = properties_of(message)
    info = old.get("delivery_info")
    marked = {**(info if isinstance(info, dict) else {}), "redelivered": True}
    return {
        **message,
        "headers": {**headers_of(message), "redelivered": True},
        "properties": {**old, "delivery_info": marked, **properties},
    }
