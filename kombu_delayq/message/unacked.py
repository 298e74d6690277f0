"""What Redis keeps of a message that a consumer holds: kombu's note, and how often consumers died with the message."""

import json
from typing import NamedTuple

from kombu_delayq.message.fields import Message


class Note(NamedTuple):
    """A message in hand, as kombu notes it in its key ``unacked``.

    Attributes:
        message: The message.
        exchange: Exchange by which it came; empty in the notes of our consumers.
        routing_key: Routing key by which it came; in the notes of our consumers the name of its queue.
    """

    message: Message
    exchange: str
    routing_key: str

    def __repr__(self) -> str:
        return f"Note(message=<a message>, exchange={self.exchange!r}, routing_key={self.routing_key!r})"


def read_note(raw: bytes) -> Note | None:
    """Reads a note as kombu does; None if it is no note of a message.

    Source: kombu.transport.redis.QoS.restore_by_tag, which takes bytes that are no UTF-8 for U+FFFD.
    """
    try:
        found = json.loads(raw.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or len(found) != 3:
        return None
    message, exchange, routing_key = found
    is_note = isinstance(message, dict) and isinstance(exchange or "", str) and isinstance(routing_key, str)
    return Note(message, exchange or "", routing_key) if is_note else None
