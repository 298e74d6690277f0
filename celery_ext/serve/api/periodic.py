"""``/v1/periodic``: periodic entries are listed, paused, resumed and run now."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from starlette.requests import Request

from celery_ext.periodic import PeriodicStore, control
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import Answer, Endpoints, Iso, iso
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve, serve_of


class PeriodicEntry(Answer):
    """A periodic entry.

    Attributes:
        name: Its name.
        state: `paused` by somebody, `off` by its own schedule, or `wrong` if it cannot be sent; else `on`.
        task: Name of its task.
        schedule: Its schedule in words.
        queues: The queues to which it goes.
        next: When its next run is due; null if none is armed.
        last: When its last run was due; null for none.
        outcome: What became of the latest run that has ended, such as `SUCCESS`, `FAILURE` or `RETRY`; null if nobody
            knows.
        missed: What becomes of runs that were missed: `last`, `skip` or `all`.
        error: Why it cannot be sent; null if it can.
    """

    name: str
    state: Literal["on", "paused", "off", "wrong"]
    task: str
    schedule: str
    queues: list[str]
    next: Iso | None
    last: Iso | None
    outcome: str | None
    missed: str
    error: str | None


class PeriodicEntries(Answer):
    """The periodic entries of a broker.

    Attributes:
        entries: The entries that were armed, by name.
        armed_by: The process that arms; null for none.
    """

    entries: list[PeriodicEntry]
    armed_by: str | None


class PeriodicDone(Answer):
    """What became of an entry.

    Attributes:
        outcome: `unchanged` if it was paused, or not, before.
    """

    outcome: Literal["paused", "resumed", "requested", "unchanged", "unknown"]


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


endpoint = Endpoints("Periodic tasks")
_ONE = "/v1/periodic/{entry:name}"


@endpoint("GET", "/v1/periodic", Action.READ)
def list_entries(request: Request) -> PeriodicEntries:
    """List the periodic entries."""
    serve = serve_of(request)
    shown = [_shown(entry) for entry in entries_of(serve, caller_of(request))]
    return PeriodicEntries(entries=shown, armed_by=serve.store.part(PeriodicStore).leader())


@endpoint("POST", _ONE + ":pause", Action.CANCEL)
def pause_entry(request: Request) -> PeriodicDone:
    """Let a periodic entry rest, and cancel what waits of it."""
    return _changed(request, control.pause)


@endpoint("POST", _ONE + ":resume", Action.RESCHEDULE)
def resume_entry(request: Request) -> PeriodicDone:
    """Let a paused periodic entry run again."""
    return _changed(request, control.resume)


@endpoint("POST", _ONE + ":run-now", Action.RUN)
def run_entry(request: Request) -> PeriodicDone:
    """Let a periodic entry run once more, now."""
    return _changed(request, control.run_now)


def _changed(request: Request, act: ChangeEntry) -> PeriodicDone:
    serve, caller, name = serve_of(request), caller_of(request), request.path_params["entry"]
    return PeriodicDone(outcome=change_entry(serve, caller, name, act))


def _shown(entry: control.Listed) -> PeriodicEntry:
    found = entry._asdict()
    next_ms, last_ms = found.pop("next_ms"), found.pop("last_ms")
    times = {"next": next_ms and iso(next_ms), "last": last_ms and iso(last_ms)}
    return PeriodicEntry(**{**found, **times, "queues": list(entry.queues), "error": entry.error or None})
