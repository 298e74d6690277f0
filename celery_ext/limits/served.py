"""Limits and keys for a caller of a server: within its rights, and with a line in the audit."""

from collections.abc import Callable
from typing import Any

from celery_ext.limits import control
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve
from kombu_delayq.errors import InvalidLimit


def check_keys(serve: Serve, caller: Caller, queue: str) -> None:
    """Raises a problem, 403, if the caller may not see the keys of a queue, which are made of arguments."""
    caller.check(Action.READ, queue=queue)
    if why := _keys_refused(serve, caller):
        raise why


def list_limits(serve: Serve, caller: Caller) -> list[control.NamedLimit]:
    """Returns the limits; those of single keys only for a caller who may see all keys."""
    found = control.list_limits(serve.store)
    if "*" in caller.queues and _keys_refused(serve, caller) is None:
        return found
    return [each for each in found if ":" not in each.name]


def change(
    serve: Serve, caller: Caller, act: Callable[..., tuple[str, control.Outcome]], name: str, *args: Any
) -> tuple[str, control.Outcome]:
    """Sets, pauses or resets a limit or a key, within the rights of a caller.

    Args:
        serve: The server.
        caller: Who does it.
        act: A function of ``control``.
        name: The name of a limit, or a key.
        args: Its other arguments.

    Raises:
        Problem: The caller may not (403), or there is no such limit (404).
    """
    caller.check(Action.PAUSE)
    if not caller.unlimited:
        detail = "a token that names queues or tasks cannot change limits: they hold in all queues, for all tasks"
        raise Problem(403, detail, "not-allowed")
    try:
        return act(serve.store, name, *args, who=caller.name)
    except (control.UnknownLimit, InvalidLimit) as error:
        raise Problem(404, str(error), "unknown-limit") from None


def _keys_refused(serve: Serve, caller: Caller) -> Problem | None:
    if serve.settings.hide_arguments:
        return Problem(403, "this server hides arguments, of which keys are made", "arguments-hidden")
    if "*" not in caller.tasks:
        return Problem(403, "a token that names tasks cannot see keys, which are of all tasks", "not-allowed")
    return None
