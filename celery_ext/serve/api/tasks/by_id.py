"""``/v1/tasks/{id}``: one waiting task is shown, cancelled, rescheduled or run."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve import changes, letters
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import answer, invalid_field, iso, with_body
from celery_ext.serve.api.idempotency import Attempt, once
from celery_ext.serve.api.models.answers import Outcome, Task
from celery_ext.serve.api.models.requests import DueRequest
from celery_ext.serve.api.tasks.shape import task_of
from celery_ext.serve.problems import Problem
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of
from celery_ext.waiting import by_id
from celery_ext.waiting.delayed_task import DelayedTask
from kombu_delayq.message.times import ms_of

_TAG = "Tasks"
_ONE = "/v1/tasks/{id:name}"


def routes() -> list[ActionRoute]:
    """Returns the routes of one task. The longer path comes first: an id may contain a colon."""
    done = {200: Outcome}
    run = Doc("Send a waiting task to its queue now.", answers=done, tag=_TAG, idempotent=True)
    change = Doc("Change when a waiting task is due.", body=DueRequest, answers=done, tag=_TAG)
    return [
        ActionRoute(_ONE + ":run", run_task, Action.RUN, method="POST", doc=run),
        ActionRoute(_ONE, show_task, Action.READ, doc=Doc("Show a waiting task.", answers={200: Task}, tag=_TAG)),
        ActionRoute(_ONE, reschedule_task, Action.RESCHEDULE, method="PATCH", doc=change),
        ActionRoute(
            _ONE, cancel_task, Action.CANCEL, method="DELETE", doc=Doc("Cancel a task.", answers=done, tag=_TAG)
        ),
    ]


def show_task(request: Request) -> Response:
    """Answers with a waiting task; of several with one id, with the one that is due first."""
    serve = serve_of(request)
    found = _found(request, Action.READ)
    if not found:
        raise _not_waiting(request)
    return answer(task_of(found[0], serve.store.now_ms(), hidden=serve.settings.hide_arguments))


def cancel_task(request: Request) -> Response:
    """Cancels a task, and ends its delay chain."""
    serve, caller, task_id = serve_of(request), caller_of(request), request.path_params["id"]
    if not _found(request, Action.CANCEL) and not caller.unlimited:
        raise _not_waiting(request)  # a chain whose step runs now belongs to nobody knows which queue
    return _done(request, changes.cancel(serve, caller, task_id))


@with_body(DueRequest)
def reschedule_task(request: Request, wanted: DueRequest) -> Response:
    """Changes when a task is due."""
    serve, task_id = serve_of(request), request.path_params["id"]
    if (wanted.eta is None) == (wanted.countdown is None):
        raise invalid_field("$", "give either eta or countdown")
    after_ms = (wanted.countdown or 0) * 1000
    due_ms = ms_of(wanted.eta) if wanted.eta is not None else serve.store.now_ms() + after_ms
    _found(request, Action.RESCHEDULE)
    return _done(request, changes.reschedule(serve, caller_of(request), task_id, due_ms), due_ms)


async def run_task(request: Request) -> Response:
    """Sends a task to its queue before it is due."""

    async def work(attempt: Attempt) -> Response:
        return await run_in_threadpool(_run, request)

    return await once(request, work)


def _run(request: Request) -> Response:
    _found(request, Action.RUN)
    return _done(request, changes.run(serve_of(request), caller_of(request), request.path_params["id"]))


def not_delayed(task_id: str) -> Problem:
    """No such task waits: 404."""
    detail = "no task with this id waits: it runs, has run, or was never sent"
    return Problem(404, detail, "not-delayed", id=task_id, outcome="not_delayed")


def _not_waiting(request: Request) -> Problem:
    """No such task waits: 404. A caller that may see a dead letter reads that it is one."""
    serve, task_id = serve_of(request), request.path_params["id"]
    letter = letters.find(serve.store, caller_of(request).may_read, task_id, serve.settings.dead_letters)
    if letter is None:
        return not_delayed(task_id)
    queue = letter.buried_in
    detail = f"this task has failed for good, and is a dead letter in queue {queue!r}: replay it, or drop it"
    return Problem(404, detail, "dead-letter", id=task_id, outcome="not_delayed", queue=queue)


def _found(request: Request, action: Action) -> list[DelayedTask]:
    """Returns the waiting tasks of an id to which the caller may do this, the next due first.

    Those that it may not even see do not exist for it.

    Raises:
        Problem: 403: the caller may only see them.
    """
    caller, task_id = caller_of(request), request.path_params["id"]
    [(_, messages)] = by_id.get(serve_of(request).store, [task_id])
    messages.sort(key=lambda message: message.due_ms)
    found = list(filter(caller.mine(action), messages))
    if not found:
        for seen in map(DelayedTask, filter(caller.mine(Action.READ), messages)):
            caller.check(action, queue=seen.queue, task=seen.name or "")
    return list(map(DelayedTask, found))


def _done(request: Request, word: by_id.Outcome, due_ms: float | None = None) -> Response:
    """Answers with what became of a task."""
    task_id = request.path_params["id"]
    if word == "not_delayed" or word == "dead_letter":
        raise _not_waiting(request)
    if word == "unreadable":
        detail = "the message of this task cannot be rewritten, so nothing changed"
        raise Problem(409, detail, "unreadable", id=task_id, outcome=word)
    done = Outcome(id=task_id, outcome=word)
    if due_ms is not None and word == "rescheduled":
        done.due = iso(due_ms)
    return answer(done)
