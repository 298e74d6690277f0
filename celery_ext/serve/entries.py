"""Periodic entries for a caller of a server: shown and changed within its rights."""

from collections.abc import Callable
from typing import TypeAlias

from celery_ext.periodic import control
from celery_ext.serve.access.identity import Action, Caller
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve

#: Pauses or resumes periodic entries, or runs them now.
ChangeEntry: TypeAlias = Callable[..., dict[str, control.Outcome]]
#: What a caller must be allowed to do with the queues and the task of an entry, by what it does with the entry.
ENTRY_ACTIONS: dict[ChangeEntry, Action] = {
    control.pause: Action.CANCEL,
    control.resume: Action.RESCHEDULE,
    control.run_now: Action.RUN,
}


def entries_of(serve: Serve, caller: Caller, action: Action = Action.READ) -> list[control.Listed]:
    """Returns the periodic entries with whose task, in each of their queues, a caller may do something."""
    return [
        entry
        for entry in control.list_entries(serve.store)
        if all(caller.may(action, queue=queue, task=entry.task) for queue in entry.queues or ("",))
    ]


def change_entry(serve: Serve, caller: Caller, name: str, act: ChangeEntry) -> control.Outcome:
    """Pauses or resumes a periodic entry, or runs it now, within the rights of a caller. Returns what became of it.

    Args:
        serve: The server.
        caller: Who does it.
        name: Name of the entry.
        act: One of ``ENTRY_ACTIONS``.

    Raises:
        Problem: There is no such entry, or none with which the caller may do this: 404.
    """
    if not any(entry.name == name for entry in entries_of(serve, caller, ENTRY_ACTIONS[act])):
        raise Problem(404, f"there is no periodic entry {name!r}", "unknown-entry")
    return act(serve.store, [name], who=caller.name)[name]
