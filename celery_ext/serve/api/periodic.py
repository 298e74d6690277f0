"""``/v1/periodic``: periodic entries are listed, paused, resumed and run now."""

from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

from celery_ext.periodic import control
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import Answer, Iso, answer, iso
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of


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


_TAG = "Periodic tasks"


def routes() -> list[ActionRoute]:
    """Returns the routes of periodic entries."""
    listing = Doc("List the periodic entries.", None, None, {200: PeriodicEntries}, _TAG)
    done = {200: PeriodicDone}
    rest = Doc("Let a periodic entry rest, and cancel what waits of it.", None, None, done, _TAG)
    back = Doc("Let a paused periodic entry run again.", None, None, done, _TAG)
    once = Doc("Let a periodic entry run once more, now.", None, None, done, _TAG)
    one = "/v1/periodic/{entry:name}"
    return [
        ActionRoute("/v1/periodic", list_entries, Action.READ, doc=listing),
        ActionRoute(one + ":pause", pause_entry, Action.CANCEL, method="POST", doc=rest),
        ActionRoute(one + ":resume", resume_entry, Action.RESCHEDULE, method="POST", doc=back),
        ActionRoute(one + ":run-now", run_entry, Action.RUN, method="POST", doc=once),
    ]


def list_entries(request: Request) -> Response:
    """Answers with the entries that the caller may see."""
    serve = serve_of(request)
    shown = [_shown(entry) for entry in changes.entries_of(serve, caller_of(request))]
    return answer(PeriodicEntries(entries=shown, armed_by=serve.store.periodic.leader()))


def pause_entry(request: Request) -> Response:
    """Lets an entry rest."""
    return _changed(request, control.pause)


def resume_entry(request: Request) -> Response:
    """Lets an entry run again."""
    return _changed(request, control.resume)


def run_entry(request: Request) -> Response:
    """Lets an entry run once more."""
    return _changed(request, control.run_now)


def _changed(request: Request, act: changes.ChangeEntry) -> Response:
    name = request.path_params["entry"]
    outcome = changes.change_entry(serve_of(request), caller_of(request), name, act)
    return answer(PeriodicDone(outcome=outcome))


def _shown(entry: control.Listed) -> PeriodicEntry:
    return PeriodicEntry(
        name=entry.name,
        state=entry.state,
        task=entry.task,
        schedule=entry.schedule,
        queues=list(entry.queues),
        next=None if entry.next_ms is None else iso(entry.next_ms),
        last=None if entry.last_ms is None else iso(entry.last_ms),
        missed=entry.missed,
        error=entry.error or None,
    )
