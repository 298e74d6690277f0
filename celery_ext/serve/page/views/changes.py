"""Changes of one task: run it now, move it, cancel it. A change answers with the way back to the task's page."""

from datetime import datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from celery_ext.delays import durations
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.page.links import Links
from celery_ext.serve.page.rendering import Note, path_of
from celery_ext.serve.page.views.forms import form_of
from celery_ext.serve.page.views.task import task_page
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from celery_ext.waiting import by_id
from kombu_delayq.errors import DelayTooLong
from kombu_delayq.message.times import ms_of
from kombu_delayq.store import OperatorStore


def run(request: Request) -> Response:
    """Sends a task to its queue now."""
    task_id, _ = _begin(request, Action.RUN)
    return _end(request, task_id, changes.run(serve_of(request), caller_of(request), task_id))


def cancel(request: Request) -> Response:
    """Cancels a task."""
    task_id, _ = _begin(request, Action.CANCEL)
    return _end(request, task_id, changes.cancel(serve_of(request), caller_of(request), task_id))


def reschedule(request: Request) -> Response:
    """Changes when a task is due."""
    task_id, form = _begin(request, Action.RESCHEDULE)
    serve = serve_of(request)
    try:
        outcome = changes.reschedule(serve, caller_of(request), task_id, new_due_ms(serve.store, form))
    except (ValueError, DelayTooLong) as error:
        text = str(error)
        return task_page(request, task_id, [Note("bad", f"Not rescheduled: {text}.".replace("..", "."))], 422)
    return _end(request, task_id, outcome)


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


def _begin(request: Request, action: Action) -> tuple[str, dict[str, str]]:
    """Returns the task id and the form, once it is certain that the caller may do this with the task."""
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
    return task_id, form


def _end(request: Request, task_id: str, outcome: str) -> Response:
    return RedirectResponse(Links(path_of(request)).task(task_id, done=outcome), 303)
