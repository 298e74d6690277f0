"""``/v1/bulk``: an action on all tasks that a filter chooses at a moment. It is counted first, and then confirmed."""

from typing import Any, Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import answer, body_of, invalid_field, iso, with_body
from celery_ext.serve.api.idempotency import Attempt, once
from celery_ext.serve.api.models.letters import BulkAnswer
from celery_ext.serve.api.models.requests import BulkRequest, BulkStart, Filter, TaskQuery
from celery_ext.serve.api.tasks.listing import selection_of
from celery_ext.serve.bulk_jobs import BulkJob
from celery_ext.serve.problems import Problem
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of
from celery_ext.waiting.bulk import Action as BulkAction
from kombu_delayq.message.times import ms_of

_TAG = "Bulk actions"
_ONE = "/v1/bulk/{id:name}"
_Name = Literal["cancel", "reschedule", "run"]
#: What a caller must be allowed to do, and the store's word for it.
_ACTIONS: dict[_Name, Action] = {"cancel": Action.CANCEL, "reschedule": Action.RESCHEDULE, "run": Action.RUN}
_WORDS: dict[str, Any] = {"cancel": "cancel", "reschedule": "reschedule", "run": "run_now"}


def routes() -> list[ActionRoute]:
    """Returns the routes of bulk actions. Each checks the action that it performs, beside the right to look."""
    count = Doc(
        "Count the tasks that a filter chooses, to act on them; needs the right to this action, too.",
        None,
        BulkRequest,
        {201: BulkAnswer},
        _TAG,
    )
    start = Doc("Start what was counted.", None, BulkStart, {200: BulkAnswer}, _TAG, idempotent=True)
    show = Doc("Show how far a bulk action is.", None, None, {200: BulkAnswer}, _TAG)
    stop = Doc("Stop a bulk action; what is done stays done.", None, None, {200: BulkAnswer}, _TAG)
    return [
        ActionRoute("/v1/bulk", count_bulk, Action.READ, method="POST", doc=count),
        ActionRoute(_ONE + ":start", start_bulk, Action.READ, method="POST", doc=start),
        ActionRoute(_ONE + ":stop", stop_bulk, Action.READ, method="POST", doc=stop),
        ActionRoute(_ONE, show_bulk, Action.READ, doc=show),
    ]


@with_body(BulkRequest)
def count_bulk(request: Request, wanted: BulkRequest) -> Response:
    """Counts the tasks that a filter chooses, and changes none."""
    serve, caller, action = serve_of(request), caller_of(request), _ACTIONS[wanted.action]
    caller.check(action)
    _check_tasks(caller, action, wanted.filter)
    chosen = wanted.filter
    query = TaskQuery(queue=chosen.queue, from_=chosen.from_, to=chosen.to, task=chosen.task, q=chosen.q)
    selection = selection_of(serve.store, caller, query, hidden=serve.settings.hide_arguments, action=action)
    due_ms = None if wanted.eta is None else ms_of(wanted.eta)
    try:
        doing = BulkAction(_WORDS[wanted.action], due_ms=due_ms)
    except ValueError as error:
        raise invalid_field("$.eta", str(error)) from None
    job = serve.jobs.count(serve.broker, caller.name, selection, doing)
    return answer(_shown(job), 201, {"Location": f"{request.scope.get('root_path', '')}/v1/bulk/{job.id}"})


async def start_bulk(request: Request) -> Response:
    """Starts a bulk action, if its caller knows how many tasks it has."""
    wanted = body_of(request, await request.body(), BulkStart)

    def start() -> Response:
        serve, job = serve_of(request), _job_of(request)
        serve.jobs.start(serve.broker, job, wanted.confirm)
        return answer(_shown(job))

    async def work(attempt: Attempt) -> Response:
        return await run_in_threadpool(start)

    return await once(request, work)


def show_bulk(request: Request) -> Response:
    """Answers with the state of a bulk action."""
    return answer(_shown(_job_of(request)))


def stop_bulk(request: Request) -> Response:
    """Stops a bulk action after the call of Redis that is under way."""
    job = _job_of(request)
    job.stop()
    return answer(_shown(job))


def _check_tasks(caller: Caller, action: Action, chosen: Filter) -> None:
    if "*" in caller.tasks:
        return
    if chosen.task is None or any(sign in chosen.task for sign in "*?["):
        raise Problem(403, f"{caller.name} may not change tasks of every name: filter by one name", "not-allowed")
    caller.check(action, task=chosen.task)


def _job_of(request: Request) -> BulkJob:
    """Returns a bulk action of the caller, who must still be allowed to do it."""
    caller = caller_of(request)
    job = serve_of(request).jobs.get(request.path_params["id"], caller.name)
    caller.check(_ACTIONS[_name_of(job)])
    return job


def _name_of(job: BulkJob) -> _Name:
    return "run" if job.action.name == "run_now" else job.action.name


def _shown(job: BulkJob) -> BulkAnswer:
    shown = BulkAnswer(
        id=job.id,
        action=_name_of(job),
        state=job.state,  # type: ignore[arg-type]  # one of its words
        matched=job.count,
        as_of=None if job.matched is None else iso(job.matched.as_of_ms),
        looked=job.looked.looked,
        done=job.done,
        of=job.looked.of if job.count is None else job.count,
        outcomes=job.outcomes,
    )
    if job.error:
        shown.error = job.error
    return shown
