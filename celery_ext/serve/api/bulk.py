"""``/v1/bulk``: an action on all tasks that a filter chooses at a moment. It is counted first, and then confirmed."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType, field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import (
    Answer,
    Count,
    Iso,
    Moment,
    QueueName,
    Sought,
    Strict,
    answer,
    body_of,
    invalid_field,
    iso,
    with_body,
)
from celery_ext.serve.api.idempotency import Attempt, once
from celery_ext.serve.api.visible import TaskQuery, selection_of
from celery_ext.serve.bulk_runs import RunView, runs_of
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of
from celery_ext.waiting import BulkAction
from kombu_delayq.message.due import ms_of


class Filter(Strict):
    """Chooses waiting tasks. All that is given has to match.

    Attributes:
        queue: Name of the queue.
        from_: Due at this time or later.
        to: Due before this time.
        task: Name of the task; ``*`` stands for any text.
        q: Text in the arguments; ``path=value`` compares one argument.
    """

    queue: QueueName | None = None
    from_: Moment | None = field(default=None, name="from")
    to: Moment | None = None
    task: Sought | None = None
    q: Sought | None = None


class BulkRequest(Strict):
    """An action on all tasks that a filter chooses now.

    Attributes:
        action: What is done to them.
        filter: Chooses the tasks.
        eta: For ``reschedule``: when they are due.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": ["eta"], "properties": {"action": {"const": "reschedule"}, "eta": {"type": "string"}}},
            {"properties": {"action": {"enum": ["cancel", "run"]}, "eta": {"type": "null"}}},
        ]
    }

    action: Literal["cancel", "reschedule", "run"]
    filter: Filter
    eta: Moment | None = None


class BulkStart(Strict):
    """Starts a bulk action.

    Attributes:
        confirm: Number of tasks that the answer to its creation named.
    """

    confirm: Annotated[int, Meta(ge=0)]


class BulkAnswer(Answer):
    """An action on all tasks that a filter chose at a moment.

    Attributes:
        id: Its name.
        action: What is done to each task.
        state: ``counting``, ``counted`` (it can be started), ``running``, ``stopped``, ``done`` or ``failed``.
        matched: How many tasks the filter chose; null until they are counted.
        as_of: When they had been counted. Tasks that came later are left alone.
        looked: While it counts: how many tasks it has looked at.
        done: How many tasks have an outcome.
        of: How many are to be looked at, or to be done.
        outcomes: How many tasks had each outcome.
        error: Why it failed.
    """

    id: str
    action: Literal["cancel", "reschedule", "run"]
    state: Literal["counting", "counted", "running", "stopped", "done", "failed"]
    matched: Count | None
    as_of: Iso | None
    looked: Count
    done: Count
    of: Count
    outcomes: dict[str, Count]
    error: str | UnsetType = UNSET


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
    caller.check_all(action, task=wanted.filter.task)
    chosen = wanted.filter
    query = TaskQuery(queue=chosen.queue, from_=chosen.from_, to=chosen.to, task=chosen.task, q=chosen.q)
    selection = selection_of(serve.store, caller, query, hidden=serve.settings.hide_arguments, action=action)
    due_ms = None if wanted.eta is None else ms_of(wanted.eta)
    try:
        doing = BulkAction(_WORDS[wanted.action], due_ms=due_ms)
    except ValueError as error:
        raise invalid_field("$.eta", str(error)) from None
    run = runs_of(request).count(caller.name, selection, doing)
    return answer(_shown(run), 201, {"Location": f"{request.scope.get('root_path', '')}/v1/bulk/{run.id}"})


async def start_bulk(request: Request) -> Response:
    """Starts a bulk action, if its caller knows how many tasks it has."""
    wanted = body_of(request, await request.body(), BulkStart)

    def start() -> Response:
        run = _run_of(request)
        return answer(_shown(runs_of(request).start(run, wanted.confirm)))

    async def work(attempt: Attempt) -> Response:
        return await run_in_threadpool(start)

    return await once(request, work)


def show_bulk(request: Request) -> Response:
    """Answers with the state of a bulk action."""
    return answer(_shown(_run_of(request)))


def stop_bulk(request: Request) -> Response:
    """Stops a bulk action after the call of Redis that is under way."""
    run = _run_of(request)
    return answer(_shown(runs_of(request).stop(run)))


def _run_of(request: Request) -> RunView:
    """Returns a bulk action of the caller, who must still be allowed to do it."""
    caller = caller_of(request)
    run = runs_of(request).get(request.path_params["id"], caller.name)
    caller.check(_ACTIONS[_name_of(run)])
    return run


def _name_of(run: RunView) -> _Name:
    return "run" if run.action.name == "run_now" else run.action.name


def _shown(run: RunView) -> BulkAnswer:
    shown = BulkAnswer(
        id=run.id,
        action=_name_of(run),
        state=run.state,  # type: ignore[arg-type]  # one of its words
        matched=run.count,
        as_of=None if run.as_of_ms is None else iso(run.as_of_ms),
        looked=run.looked,
        done=run.done,
        of=run.to_look if run.count is None else run.count,
        outcomes=run.outcomes,
    )
    if run.error:
        shown.error = run.error
    return shown
