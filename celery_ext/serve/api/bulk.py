"""``/v1/bulk``: an action on all tasks that a filter chooses at a moment. It is counted first, and then confirmed."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import Answer, Count, Endpoints, Iso, Moment, Strict, answer, invalid_field, iso
from celery_ext.serve.api.visible import Filter, selection_of
from celery_ext.serve.bulk_runs import RunView, run_of, runs_of
from celery_ext.serve.service import serve_of
from celery_ext.waiting import BulkAction
from kombu_delayq.message import ms_of


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


endpoint = Endpoints("Bulk actions")
_ONE = "/v1/bulk/{id:name}"


@endpoint("POST", "/v1/bulk", Action.READ, answers=BulkAnswer, status=201)
def count_bulk(request: Request, body: BulkRequest) -> Response:
    """Count the tasks that a filter chooses, to act on them; needs the right to this action, too."""
    serve, caller, action, chosen = serve_of(request), caller_of(request), Action(body.action), body.filter
    caller.check_all(action, task=chosen.task)
    selection = selection_of(serve.store, caller, chosen, hidden=serve.settings.hide_arguments, action=action)
    due_ms = None if body.eta is None else ms_of(body.eta)
    try:
        doing = BulkAction("run_now" if body.action == "run" else body.action, due_ms=due_ms)
    except ValueError as error:
        raise invalid_field("$.eta", str(error)) from None
    run = runs_of(request).count(caller.name, selection, doing)
    return answer(_shown(run), 201, {"Location": f"{request.scope.get('root_path', '')}/v1/bulk/{run.id}"})


@endpoint("POST", _ONE + ":start", Action.READ, idempotent=True)
def start_bulk(request: Request, body: BulkStart) -> BulkAnswer:
    """Start what was counted."""
    return _shown(runs_of(request).start(run_of(request), body.confirm))


@endpoint("POST", _ONE + ":stop", Action.READ)
def stop_bulk(request: Request) -> BulkAnswer:
    """Stop a bulk action after the call of Redis that is under way; what is done stays done."""
    return _shown(runs_of(request).stop(run_of(request)))


@endpoint("GET", _ONE, Action.READ)
def show_bulk(request: Request) -> BulkAnswer:
    """Show how far a bulk action is."""
    return _shown(run_of(request))


def _shown(run: RunView) -> BulkAnswer:
    return BulkAnswer(
        id=run.id,
        action=str(changes.BULK_ACTIONS[run.action.name]),  # type: ignore[arg-type]  # one of three
        state=run.state,  # type: ignore[arg-type]  # one of its words
        matched=run.count,
        as_of=None if run.as_of_ms is None else iso(run.as_of_ms),
        looked=run.looked,
        done=run.done,
        of=run.to_look if run.count is None else run.count,
        outcomes=run.outcomes,
        error=run.error or UNSET,
    )
