"""One task once while it waits: what a call asks of the store that holds a message of its task id already."""

from contextvars import ContextVar
from typing import Any, Literal

from kombu_delayq.errors import InvalidIfWaiting, did_you_mean, quoted
from kombu_delayq.message.fields import Message

#: Message property with one of ``MODES``; ``read_mode`` takes it away, so that no message keeps it.
IF_WAITING = "if_waiting"
#: What happens where a message of the id waits: the new one comes beside it, is not stored, or takes its place.
MODES = ("add", "keep", "replace")

#: What became of a message: ``kept`` is that which waited.
Once = Literal["added", "kept", "replaced"]

#: What became of the latest message of this context that had the property; a caller sets None before it publishes.
became: ContextVar[Once | None] = ContextVar("delayq_if_waiting", default=None)


def check_mode(given: Any, where: str) -> str | None:
    """Returns what happens where a message of the id waits; None for ``add``, which asks nothing.

    Args:
        given: Value of ``if_waiting``; None for ``add``.
        where: Names the task or the call, for the error.

    Raises:
        InvalidIfWaiting: The value is not one of ``MODES``.
    """
    if given is None or given == "add":
        return None
    if isinstance(given, str) and given in MODES:
        return given
    hint = did_you_mean(given, MODES)
    raise InvalidIfWaiting(f"if_waiting of {where} is one of {', '.join(map(repr, MODES))}, not {quoted(given)}{hint}")


def read_mode(message: Message) -> tuple[str | None, Message]:
    """Returns what happens where a message's id waits, as ``check_mode``, and the message without that property.

    The message itself keeps the property: kombu publishes it again where the connection is lost.

    Raises:
        InvalidIfWaiting: The value is not one of ``MODES``.
    """
    properties = message["properties"]
    if IF_WAITING not in properties:
        return None, message
    mode = check_mode(properties[IF_WAITING], "a call")
    return mode, {**message, "properties": {name: value for name, value in properties.items() if name != IF_WAITING}}
