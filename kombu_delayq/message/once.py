"""One task once while it waits: what a call asks of the store that holds a message of its id or key already."""

import os
import re
from contextvars import ContextVar
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from kombu_delayq.errors import InvalidIfWaiting, did_you_mean, quoted
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.fields import Message, headers_of, read

#: Message property with one of ``MODES``; ``read_mode`` takes it away, so that no message keeps it.
IF_WAITING = "if_waiting"


class Mode(NamedTuple):
    """What happens where a message of the id or key waits.

    Attributes:
        waiting: What becomes of that one, as ``it …``.
        new: What becomes of the new one.
        use: What it is good for.
    """

    waiting: str
    new: str
    use: str


#: A mode, and what became of a message: ``kept`` is that which waited. ``put_once`` of the scripts knows them, too.
IfWaiting = Literal["add", "keep", "replace"]
Once = Literal["added", "kept", "replaced"]
MODES: dict[IfWaiting, Mode] = {
    "add": Mode("stays", "waits beside it", "tasks that all have to run"),
    "keep": Mode("stays, with its due time and arguments", "is not stored", "throttle: at most one run every 30 s"),
    "replace": Mode(
        "goes",
        "waits in its place, with its own due time and arguments",
        "debounce: 30 s after the last edit; the newest wins",
    ),
}
#: The mode of a call that asks nothing, and of one with a key that does not say which.
ADD: IfWaiting = "add"
WITH_KEY: IfWaiting = "keep"


def modes_in_words() -> str:
    """Returns what each mode does, in a clause each."""
    return "; ".join(f"`{word}`: the new one {mode.new}" for word, mode in MODES.items())


class Became(NamedTuple):
    """What became of a message.

    Attributes:
        outcome: One of the words.
        id: Id of the task that waits now: of the message, or of that which kept it out.
    """

    outcome: Once
    id: str


#: What became of the latest message of this context that had the property; a caller sets None before it publishes.
became: ContextVar[Became | None] = ContextVar("delayq_if_waiting", default=None)

#: The id of a task with a waiting key. A duplicate in the store has as many characters behind the ``~``, but no ``k``.
#: Source: lua/include/shared/duplicates.lua.
_KEYED = re.compile(r"~k[0-9a-f]{15}\Z")


def new_id(key: str, seed: str | None = None) -> str:
    """Returns the id of a new task of a waiting key, or of that of another task. The store finds it by the key, too.

    Args:
        key: The key, or the id of a task.
        seed: A text; the ids that are made with it are the same.
    """
    digits = os.urandom(8) if seed is None else sha256(seed.encode()).digest()
    return f"{key_of(key)}~k{digits.hex()[:15]}"


def key_of(task_id: str) -> str:
    """Returns the waiting key of a task by its id; another id is its own."""
    return _KEYED.sub("", task_id)


def is_doomed(body: bytes, due_ms: float, now_ms: float) -> bool:
    """Whether a waiting message has expired, or will have when it is due: no worker will run it."""
    expires = eta_of({"headers": {"eta": headers_of(read(body)).get("expires")}})
    return expires is not None and expires.ms <= max(now_ms, due_ms)


def check_mode(given: Any, where: str) -> str | None:
    """Returns what happens where a message of the id waits; None for ``add``, which asks nothing.

    Args:
        given: Value of ``if_waiting``; None for ``add``.
        where: Names the task or the call, for the error.

    Raises:
        InvalidIfWaiting: The value is not one of ``MODES``.
    """
    if given is None or given == ADD:
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


def refuse_mode(message: Message, exchange: str) -> None:
    """Raises InvalidIfWaiting if a message to a fanout exchange asks: nothing waits there."""
    if read_mode(message)[0] is not None:
        raise InvalidIfWaiting(
            f"if_waiting of a call to the exchange {exchange!r} has no effect: a broadcast reaches all consumers at "
            "once, and nothing waits; leave it out, or give if_waiting='add'"
        )
