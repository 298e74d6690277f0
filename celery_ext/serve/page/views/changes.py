"""Changes of one task: run it now, move it, cancel it. A change answers with the way back to the task's page."""

from contextlib import nullcontext
from datetime import datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.delays import durations
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.actions import letters
from celery_ext.serve.page.links import Links
from celery_ext.serve.page.rendering import Note, path_of
from celery_ext.serve.page.views.forms import form_of
from celery_ext.serve.page.views.task import task_page
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from celery_ext.waiting import by_id, revoke
from kombu_delayq.errors import DelayTooLong
from kombu_delayq.message.times import ms_of
from kombu_delayq.store import OperatorStore


def run(request: Request) -> Response:
    """Sends a task to its queue now."""
    store, task_id, _ = _begin(request, Action.RUN)
    [(_, outcome)] = by_id.run_now(store, [task_id], caller_of(request).mine(Action.RUN))
    return _end(request, "run", task_id, outcome)


def cancel(request: Request) -> Response:
    """Cancels a task."""
    store, task_id, _ = _begin(request, Action.CANCEL)
    app, caller = serve_of(request).broker.app, caller_of(request)
    only = None if caller.unlimited else caller.mine(Action.CANCEL)
    [cancelled] = revoke.cancel(lambda: nullcontext(store), [task_id], app, only=only)
    outcome: str = cancelled.outcome
    if not cancelled.messages and letters.find(
        store, caller.may_read, task_id, serve_of(request).settings.dead_letters
    ):
        outcome = "dead_letter"
    return _end(request, "cancel", task_id, outcome)


def reschedule(request: Request) -> Response:
    """Changes when a task is due."""
    store, task_id, form = _begin(request, Action.RESCHEDULE)
    try:
        due_ms = new_due_ms(store, form)
        [(_, outcome)] = by_id.reschedule(store, [task_id], due_ms, caller_of(request).mine(Action.RESCHEDULE))
    except (ValueError, DelayTooLong) as error:
        text = str(error)
        return task_page(request, task_id, [Note("bad", f"Not rescheduled: {text}.".replace("..", "."))], 422)
    return _end(request, "reschedule", task_id, outcome)


def new_due_ms(store: OperatorStore, form: dict[str, str]) -> float:
    """Returns the due time that a form asks for, ms since the epoch: ``countdown`` from now, or ``eta``.

    Raises:
        ValueError: Both or none are given, or one is no such value.
    """
    countdown, eta = form.get("countdown", "").strip(), form.get("eta", "").strip()
    if bool(countdown) is bool(eta):
        raise ValueError("give either a delay or a time")
    if countdown:
        return store.now_ms() + durations.parse(countdown) * 1000
    try:
        return ms_of(datetime.fromisoformat(eta))
    except ValueError:
        raise ValueError(f"“{eta[:40]}” is no time") from None


def _begin(request: Request, action: Action) -> tuple[OperatorStore, str, dict[str, str]]:
    """Returns the store, the task id and the form, once it is certain that the caller may do this with the task."""
    store, caller, form = serve_of(request).store, caller_of(request), dict(form_of(request))
    task_id = form.get("id", "").strip()
    if not task_id:
        raise bad_request("the form names no task")
    [(_, messages)] = by_id.get(store, [task_id])
    if not any(map(caller.mine(action), messages)):
        if any(map(caller.mine(Action.READ), messages)):
            raise Problem(403, f"{caller.name} may not {action} this task", "not-allowed")
        if messages or not (caller.may(action) and caller.unlimited):
            # For this caller it does not wait. A step of its delay chain may run, of a queue and a task that nobody
            # knows here.
            raise Problem(404, "this task does not wait")
    return store, task_id, form


def _end(request: Request, action: str, task_id: str, outcome: str) -> Response:
    if outcome not in ("not_delayed", "dead_letter"):
        serve_of(request).store.audit.note(caller_of(request).name, action, {"id": task_id}, 1)
    links = Links(path_of(request))
    return RedirectResponse(links.task(task_id, done=outcome), 303)
