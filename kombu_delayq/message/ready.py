"""Since when a message could have been consumed: by its eta, or by AMQP's property ``timestamp``."""

from time import time
from typing import Any

from kombu_delayq.message.due import Due, eta_of
from kombu_delayq.message.fields import Message, headers_of, properties_of

#: Message property of AMQP, in whole s since the epoch: when a message went to its queue. A message that waits for its
#: eta needs none: it is ready at its eta, and is the same each time it is published.
TIMESTAMP = "timestamp"


def stamp() -> dict[str, int]:
    """Returns the property of a message that goes to its queue now."""
    return {TIMESTAMP: int(time())}


def stamp_published(message: Message, due: Due | None) -> None:
    """Gives a message that is being published the property, unless its caller or its eta says since when it is ready.

    Args:
        message: The message.
        due: When it is due, of a message that waits; None for now. A task that waits has an eta, or its messages have
            to stay the same, so that a repeated one is recognized.
    """
    if due is None:
        message["properties"].setdefault(TIMESTAMP, int(time()))
    elif due.relative and due.task_id is None:
        message["properties"].setdefault(TIMESTAMP, int(time() + due.ms / 1000))


def ready_since_s(message: Message) -> float | None:
    """Returns since when a message could have been consumed, s since the epoch; None where nothing says it.

    That is its ``timestamp``, or its eta where that is later: of a message from another publisher, or one that waited.
    An eta in a body, of a task of protocol 1, does not count: bodies are not read for this.
    """
    timestamp, eta = properties_of(message).get(TIMESTAMP), headers_of(message).get("eta", "")
    if eta is None and type(timestamp) is int:  # as most tasks are; the rest takes several times as long
        return timestamp
    return later(timestamp, eta_of(message, accept=()))


def later(timestamp: Any, eta: Due | None) -> float | None:
    """Returns the later one of a property ``timestamp`` and an eta, s since the epoch; None where there is neither."""
    since = timestamp if isinstance(timestamp, int | float) and not isinstance(timestamp, bool) else None
    due_s = None if eta is None else eta.ms / 1000
    return due_s if since is None else since if due_s is None else max(since, due_s)


def stamp_text() -> str:
    """Returns the property of a message that goes to its queue now, as JSON with a comma before it."""
    return f', "{TIMESTAMP}": {int(time())}'
