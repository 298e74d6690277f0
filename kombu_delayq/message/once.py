"""One task once while it waits: what a task or call asks of the store that holds a message of its id or key already."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from hashlib import sha256
from inspect import signature
from typing import Any, Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from kombu.utils.json import dumps

from kombu_delayq.errors import InvalidIfWaiting, did_you_mean, quoted
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.fields import Message, headers_of, read
from kombu_delayq.message.letter_record import DEAD_LETTER

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
    "add": Mode("stays", "waits next to it", "tasks that all have to run"),
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
#: Where ``send_task`` takes these, if a caller gives them without their names.
_PLACES = {"args": 1, "kwargs": 2, "task_id": 5}


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


def check_waiting(task: Any) -> None:
    """Checks ``waiting_key`` and ``if_waiting`` of a task class.

    Raises:
        InvalidIfWaiting: One of them is wrong.
    """
    check_mode(task.if_waiting, f"task {task.name}")
    key = task.waiting_key
    if key is None:
        return
    if isinstance(key, str) or not (isinstance(key, Sequence) and key and all(isinstance(name, str) for name in key)):
        raise InvalidIfWaiting(
            f'waiting_key of task {task.name} is a list of argument names, such as ("order_id",), not {quoted(key)}'
        )


def waiting_options(
    tasks: Mapping[str, Any], args: Sequence[Any], options: dict[str, Any], given: str | None, key: str | None
) -> str | None:
    """Returns what happens where the task id or the key of a call waits; None if nobody asks. Adds the id of a key.

    Args:
        tasks: The tasks of the app that sends, by name.
        args: Positional arguments of ``send_task``.
        options: Its other arguments; ``task_id`` is added to them.
        given: ``if_waiting`` of the call.
        key: ``waiting_key`` of the call.

    Raises:
        InvalidIfWaiting: The mode, the key or the task id is wrong, or there is neither a task id nor a key.
    """
    name = str(args[0] if args else options.get("name"))
    task = tasks.get(name)
    if given is None and (options.get("retries") or DEAD_LETTER in options):  # of a task that has run
        return None
    mode, task_id = mode_of(task, name, given, key), argument("task_id", args, options)
    if key is not None and task_id is None:
        options["task_id"] = new_id(key)
    elif mode is None:
        return None
    elif task_id is None:
        given_args, given_kwargs = argument("args", args, options), argument("kwargs", args, options)
        options["task_id"] = id_of_call(task, name, mode, given_args or (), given_kwargs or {})
    elif not isinstance(task_id, str):
        raise InvalidIfWaiting(
            f"if_waiting={mode!r} of a call of task {name} needs a task_id that is a text, not {task_id!r}"
        )
    return mode


def mode_of(task: Any, name: str, given: str | None, key: str | None = None) -> str | None:
    """Returns what happens where the id or the key of a call of a task waits; None if nobody asks.

    Args:
        task: The task; None if the app does not know it.
        name: Its name.
        given: ``if_waiting`` of the call.
        key: ``waiting_key`` of the call.

    Raises:
        InvalidIfWaiting: There is no such mode, or the key is no text.
    """
    if key is not None and not (isinstance(key, str) and key):
        raise InvalidIfWaiting(f"waiting_key of a call of task {name} is a text, such as 'order-17', not {quoted(key)}")
    of_task = getattr(task, "if_waiting", None)
    key = getattr(task, "waiting_key", None) if key is None else key
    if given is None and (key is not None or of_task is not None):
        given = of_task or WITH_KEY
    return check_mode(given, f"a call of task {name}")


def apply_here(
    apply: Callable[..., Any],
    task: Any,
    /,
    *args: Any,
    if_waiting: str | None = None,
    waiting_key: str | None = None,
    **options: Any,
) -> Any:
    """Runs a call by ``celery.Task.apply``. Nothing waits then, so a call that asks was ``added``.

    Raises:
        InvalidIfWaiting: As of ``mode_of``.
    """
    mode = mode_of(task, task.name, if_waiting, waiting_key)
    result = apply(*args, **options)
    if mode is not None or if_waiting is not None:
        result.if_waiting = "added"
    return result


def id_of_call(task: Any, name: str, mode: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Returns an id for a call of a task with a waiting key. The key itself is a UUID of version 5.

    Raises:
        InvalidIfWaiting: The task has no key; or the arguments do not have what it names, or Celery's JSON cannot write
            that.
    """
    if getattr(task, "waiting_key", None) is None:
        raise InvalidIfWaiting(
            f"if_waiting={mode!r} of a call of task {name} needs a waiting_key, of the call or of the task"
        )
    try:
        bound = signature(task.run).bind(*args, **kwargs)
        bound.apply_defaults()
        values = [bound.arguments[each] for each in task.waiting_key]
        text = dumps([task.name, values], sort_keys=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidIfWaiting(
            f"waiting_key {tuple(task.waiting_key)!r} of task {task.name} cannot be made of a call: {error}"
        ) from error
    return new_id(str(uuid5(NAMESPACE_URL, f"delayq:{text}")))


def argument(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Returns an argument of ``send_task``, given with its name or without; None if it is not given."""
    place = _PLACES[name]
    return args[place] if len(args) > place else options.get(name)
