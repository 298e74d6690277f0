"""What Redis keeps of a message that a consumer holds: kombu's note of it."""

import json
from typing import Any, NamedTuple

from kombu_delayq.message.fields import (
    DELIVERY_COUNT,
    Message,
    deliveries_of,
    headers_of,
    priority_of,
    properties_of,
    to_json,
)
from kombu_delayq.message.outgoing import stamp

#: Stands in the notes of our consumers between the message and the name of its queue.
_NO_EXCHANGE = b',"",'


class HeldNote(NamedTuple):
    """A message in hand, as it is noted in kombu's key ``unacked``.

    Attributes:
        message: The message; empty if it is no message of kombu.
        raw: The message as its queue had it; empty in a note of stock kombu.
        exchange: Exchange by which it came; empty in the notes of our consumers.
        routing_key: Routing key by which it came; in the notes of our consumers the name of its queue.
    """

    message: Message
    raw: bytes
    exchange: str
    routing_key: str

    def __repr__(self) -> str:
        return f"HeldNote(<{len(self.raw)} bytes>, exchange={self.exchange!r}, routing_key={self.routing_key!r})"

    @property
    def deaths(self) -> int:
        """How often the message was in the hands of a consumer that died, with the one that dies now."""
        return deliveries_of(self.message) + 1

    @property
    def priority(self) -> int:
        """Priority of the message, 0 to 9."""
        return priority_of(self.message)

    def given_back(self) -> str | bytes:
        """Returns the message as it goes back to its queue after the death of its consumer: redelivered, and counted.

        What is no message goes back as it was. The consumer that gets it next reports it.
        """
        if not self.message:
            return self.raw
        return to_json(redelivered(self.message, **{DELIVERY_COUNT: self.deaths}, **stamp()))


def read_note(noted: bytes) -> HeldNote | None:
    """Reads a note as kombu does, or else as our consumers write it, with whatever message; None if it is neither.

    Source: kombu.transport.redis.QoS.restore_by_tag, which takes bytes that are no UTF-8 for U+FFFD.
    """
    given, found, queue = noted[1:].rpartition(_NO_EXCHANGE)
    raw = given if noted[:1] == b"[" and found else b""
    whole = _loads(noted)
    if isinstance(whole, list) and len(whole) == 3 and isinstance(whole[0], dict):
        message, exchange, routing_key = whole
        is_note = isinstance(exchange or "", str) and isinstance(routing_key, str)
        return HeldNote(message, raw, exchange or "", routing_key) if is_note else None
    name = _loads(queue[:-1]) if found and queue[-1:] == b"]" and noted[:1] == b"[" else None
    return HeldNote({}, raw, "", name) if isinstance(name, str) else None


def _loads(text: bytes) -> object:
    try:
        return json.loads(text.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


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
