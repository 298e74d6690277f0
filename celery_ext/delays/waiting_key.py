"""One task once while it waits: reads ``if_waiting`` and ``waiting_key`` of tasks and calls."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from kombu.utils.json import dumps

from celery_ext.celery_tasks import tasks_of
from kombu_delayq.errors import InvalidIfWaiting, quoted
from kombu_delayq.message import DEAD_LETTER, WITH_KEY, check_mode, new_id

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


def waiting_options(
    app: Any, args: Sequence[Any], options: dict[str, Any], given: str | None, key: str | None
) -> str | None:
    """Returns what happens where the task id or the key of a call waits; None if nobody asks. Adds the id of a key.

    Args:
        app: The app that sends.
        args: Positional arguments of ``send_task``.
        options: Its other arguments; ``task_id`` is added to them.
        given: ``if_waiting`` of the call.
        key: ``waiting_key`` of the call.

    Raises:
        InvalidIfWaiting: The mode, the key or the task id is wrong, or there is neither a task id nor a key.
    """
    name = str(args[0] if args else options.get("name"))
    task = tasks_of(app).get(name)
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
