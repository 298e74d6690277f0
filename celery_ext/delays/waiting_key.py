"""One task once while it waits: reads ``if_waiting`` and ``waiting_key`` of tasks and calls."""

import json
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from celery_ext.celery_tasks import tasks_of
from kombu_delayq.errors import InvalidIfWaiting, quoted
from kombu_delayq.message.dead_letters import DEAD_LETTER
from kombu_delayq.message.once import check_mode

#: Where ``send_task`` takes these, if a caller gives them without their names.
_PLACES = {"args": 1, "kwargs": 2, "task_id": 5}


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


def waiting_options(app: Any, args: Sequence[Any], options: dict[str, Any], given: str | None) -> str | None:
    """Returns what happens where the task id of a call waits; None if nobody asks. Adds the id that a key makes.

    Args:
        app: The app that sends.
        args: Positional arguments of ``send_task``.
        options: Its other arguments; ``task_id`` is added to them.
        given: ``if_waiting`` of the call.

    Raises:
        InvalidIfWaiting: The mode or the task id is wrong, or there is neither a task id nor a key to make one.
    """
    name = str(args[0] if args else options.get("name"))
    task = tasks_of(app).get(name)
    if given is None and (options.get("retries") or DEAD_LETTER in options):  # of a task that has run
        return None
    mode = mode_of(task, name, given)
    if mode is None:
        return None
    task_id = argument("task_id", args, options)
    if task_id is None:
        given_args, given_kwargs = argument("args", args, options), argument("kwargs", args, options)
        options["task_id"] = id_of_call(task, name, mode, given_args or (), given_kwargs or {})
    elif not isinstance(task_id, str):
        raise InvalidIfWaiting(
            f"if_waiting={mode!r} of a call of task {name} needs a task_id that is a text, not {task_id!r}"
        )
    return mode


def mode_of(task: Any, name: str, given: str | None) -> str | None:
    """Returns what happens where the id of a call of a task waits; None if nobody asks.

    Args:
        task: The task; None if the app does not know it.
        name: Its name.
        given: ``if_waiting`` of the call.

    Raises:
        InvalidIfWaiting: There is no such mode.
    """
    key, of_task = getattr(task, "waiting_key", None), getattr(task, "if_waiting", None)
    if given is None and (key is not None or of_task is not None):
        given = of_task or "keep"
    return check_mode(given, f"a call of task {name}")


def apply_here(
    apply: Callable[..., Any], task: Any, /, *args: Any, if_waiting: str | None = None, **options: Any
) -> Any:
    """Runs a call by ``celery.Task.apply``. Nothing waits then, so a call that asks was ``added``.

    Raises:
        InvalidIfWaiting: There is no such mode.
    """
    mode = mode_of(task, task.name, if_waiting)
    result = apply(*args, **options)
    if mode is not None or if_waiting is not None:
        result.if_waiting = "added"
    return result


def id_of_call(task: Any, name: str, mode: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Returns the task id that the waiting key of a task makes of a call without one: a UUID of version 5.

    Raises:
        InvalidIfWaiting: The task has no key; or the arguments do not have what it names, or JSON cannot write that.
    """
    if getattr(task, "waiting_key", None) is None:
        raise InvalidIfWaiting(
            f"if_waiting={mode!r} of a call of task {name} needs a task_id, or a waiting_key of the task"
        )
    try:
        bound = signature(task.run).bind(*args, **kwargs)
        bound.apply_defaults()
        values = [bound.arguments[each] for each in task.waiting_key]
        text = json.dumps([task.name, values], sort_keys=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidIfWaiting(
            f"waiting_key {tuple(task.waiting_key)!r} of task {task.name} cannot be made of a call: {error}"
        ) from error
    return str(uuid5(NAMESPACE_URL, f"delayq:{text}"))


def argument(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Returns an argument of ``send_task``, given with its name or without; None if it is not given."""
    place = _PLACES[name]
    return args[place] if len(args) > place else options.get(name)
