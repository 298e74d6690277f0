"""``/v1/tasks``: waiting tasks are listed, shown, cancelled, rescheduled and run."""

from collections.abc import Iterator
from itertools import accumulate
from time import monotonic
from typing import Any, ClassVar, Literal

from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from celery_ext.delays import DelayChain
from celery_ext.serve import changes
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import (
    Answer,
    Countdown,
    Endpoints,
    Iso,
    Moment,
    Strict,
    as_json,
    invalid_field,
    iso,
)
from celery_ext.serve.api.visible import ARGUMENTS, TaskQuery, selection_of, shown_of
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import serve_of
from celery_ext.waiting import BulkAction, DelayedTask, Done, Progress, Skipped, search_page, search_tasks
from kombu_delayq.message import ms_of


class DueRequest(Strict):
    """When a task is to be due: either of the two.

    Attributes:
        eta: When.
        countdown: In s from now, by Redis's clock.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "oneOf": [
            {"required": [one], "properties": {one: {"not": {"type": "null"}}, other: {"type": "null"}}}
            for one, other in (("eta", "countdown"), ("countdown", "eta"))
        ]
    }

    eta: Moment | None = None
    countdown: Countdown | None = None


class Outcome(Answer):
    """What became of a task.

    Attributes:
        id: Task id.
        outcome: ``cancelled`` (it will never run), ``chain_ended`` (a step that runs now is the last),
            ``asked_to_stop`` (it runs, and asks ``cancelled``), ``rescheduled``, ``transferred`` (it is in its queue
            now).
        due: With ``rescheduled``: when it is due.
    """

    id: str
    outcome: Literal["cancelled", "chain_ended", "asked_to_stop", "rescheduled", "transferred"]
    due: Iso | UnsetType = UNSET


class Step(Answer):
    """A step of a delay chain that is still ahead.

    Attributes:
        delay_s: How long it waits, in s, without jitter.
        at: When it is due if the runs before fail at once.
    """

    delay_s: float
    at: Iso


class Steps(Answer):
    """Where a task stands in its delay chain.

    Attributes:
        behind: Delays of the steps that it has waited for, the present one last, in s.
        ahead: The steps to come.
    """

    behind: list[float]
    ahead: list[Step]


class Task(Answer):
    """A waiting task.

    Attributes:
        id: Task id.
        task: Its name; null for a message that is no task.
        queue: Its queue.
        due: When it is due.
        due_in_s: In how many s; negative if it is overdue.
        priority: 0 to 9.
        retries: How often it was retried.
        args: Positional arguments; null where they cannot be read, absent where the server hides them. So are all
            fields below.
        kwargs: Keyword arguments.
        argsrepr: Positional arguments as text.
        kwargsrepr: Keyword arguments as text.
        last_error: Why the run before failed, of a task that waits for a retry; it may name arguments.
        headers: Headers of the message.
        properties: Properties of the message.
        delay_chain: Its retry schedule.
        steps: Where it stands in that; null if there is none, or it cannot be read.
        state: Always ``delayed``.
        tier: Who has it: ``redis``, or ``journal`` while only the journal's database has it.
    """

    id: str
    task: str | None
    queue: str
    due: Iso
    due_in_s: float
    priority: int
    retries: int
    args: Any = UNSET
    kwargs: Any = UNSET
    argsrepr: str | UnsetType = UNSET
    kwargsrepr: str | UnsetType = UNSET
    last_error: str | UnsetType | None = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    properties: dict[str, Any] | UnsetType = UNSET
    delay_chain: str | None = None
    steps: Steps | None = None
    state: Literal["delayed"] = "delayed"
    tier: Literal["redis", "journal"] = "redis"


class TaskList(Answer):
    """A page of waiting tasks.

    Attributes:
        tasks: The tasks, the next due first.
        cursor: Where the next page begins; null on the last.
    """

    tasks: list[Task]
    cursor: str | None


def task_of(task: DelayedTask, now_ms: float, *, hidden: bool) -> Task:
    """Returns a task as the API shows it.

    Args:
        task: The task.
        now_ms: Redis's clock, ms since the epoch.
        hidden: Whether arguments are kept back.
    """
    fields = {**task.as_json(now_ms), "due": iso(task.message.due_ms), "args": task.args, "kwargs": task.kwargs}
    if hidden:
        fields |= dict.fromkeys(ARGUMENTS, UNSET)
    headers, properties = shown_of(task.headers, hidden=hidden), shown_of(task.properties, hidden=hidden)
    return Task(**fields, headers=headers, properties=properties, steps=_steps(task))


def _steps(task: DelayedTask) -> Steps | None:
    chain = DelayChain.read(task.delay_chain)
    if chain is None:
        return None
    delays, done = [delay.total_seconds() for delay in chain], max(task.retries, 0)
    behind, to_come = delays[:done], delays[done:]
    due_ms = [task.message.due_ms + after_s * 1000 for after_s in accumulate(to_come)]
    return Steps(
        behind=behind, ahead=[Step(delay_s=wait, at=iso(at)) for wait, at in zip(to_come, due_ms, strict=True)]
    )


NDJSON = "application/x-ndjson"
#: How long lines of a stream may wait for others, in s, and how many do.
_TOGETHER_S, _TOGETHER = 0.1, 50


endpoint = Endpoints("Tasks")
_ONE = "/v1/tasks/{id:name}"


@endpoint("GET", "/v1/tasks", Action.READ, answers=TaskList)
def list_tasks(request: Request, query: TaskQuery) -> Response | TaskList:
    """List waiting tasks, the next due first.

    The answer is a stream of lines if the caller accepts ``application/x-ndjson``.
    """
    serve, caller = serve_of(request), caller_of(request)
    hidden, store = serve.settings.hide_arguments, serve.store
    if query.from_ is not None and query.to is not None and query.from_ >= query.to:
        return TaskList(tasks=[], cursor=None)
    selection = selection_of(store, caller, query, hidden=hidden)
    try:
        if NDJSON in request.headers.get("accept", ""):
            events = search_tasks(store, selection, query.cursor, limit=query.limit)
            return StreamingResponse(_chunks(_lines(events, caller, store.now_ms(), hidden=hidden)), media_type=NDJSON)
        found = search_page(store, selection, query.cursor, query.limit)
    except ValueError as error:
        raise bad_request(str(error), "bad-cursor") from None
    now_ms = store.now_ms()
    tasks = [task_of(task, now_ms, hidden=hidden) for task in found.tasks if _may_see(caller, task)]
    return TaskList(tasks=tasks, cursor=found.cursor)


def _may_see(caller: Caller, task: DelayedTask) -> bool:
    return caller.may(Action.READ, queue=task.queue, task=task.name or "")


def _lines(
    events: Iterator[DelayedTask | Progress | Skipped | Done], caller: Caller, now_ms: float, *, hidden: bool
) -> Iterator[bytes]:
    try:
        for event in events:
            match event:
                case DelayedTask():
                    if _may_see(caller, event):
                        yield as_json({"task": task_of(event, now_ms, hidden=hidden)})
                case Progress(looked, of):
                    yield as_json({"progress": {"looked": looked, "of": of}})
                case Skipped(queue, error):
                    yield as_json({"skipped": {"queue": queue, "error": error}})
                case Done(cursor):
                    yield as_json({"done": True, "cursor": cursor})
    except Exception as error:  # the status has been sent: the stream itself has to say that it ends too soon
        yield as_json({"error": {"status": 503, "detail": f"the search ended too soon: {type(error).__name__}"}})


def _chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Joins lines that come one after the other: each chunk costs the server a change of threads."""
    waiting: list[bytes] = []
    begun = monotonic()
    for line in lines:
        waiting.append(line + b"\n")
        if len(waiting) >= _TOGETHER or monotonic() - begun >= _TOGETHER_S or not line.startswith(b'{"task"'):
            yield b"".join(waiting)
            waiting, begun = [], monotonic()
    if waiting:
        yield b"".join(waiting)


@endpoint("POST", _ONE + ":run", Action.RUN, idempotent=True)  # before the shorter paths: an id may contain a colon
def run_task(request: Request) -> Outcome:
    """Send a waiting task to its queue now."""
    _found(request, Action.RUN)
    return _done(request, BulkAction("run_now"))


@endpoint("GET", _ONE, Action.READ)
def show_task(request: Request) -> Task:
    """Show a waiting task; of several with one id, the one that is due first."""
    serve = serve_of(request)
    found = _found(request, Action.READ)
    if not found:
        raise _not_waiting(request)
    return task_of(found[0], serve.store.now_ms(), hidden=serve.settings.hide_arguments)


@endpoint("PATCH", _ONE, Action.RESCHEDULE)
def reschedule_task(request: Request, body: DueRequest) -> Outcome:
    """Change when a waiting task is due."""
    serve = serve_of(request)
    if (body.eta is None) == (body.countdown is None):
        raise invalid_field("$", "give either eta or countdown")
    after_ms = (body.countdown or 0) * 1000
    due_ms = ms_of(body.eta) if body.eta is not None else serve.store.now_ms() + after_ms
    _found(request, Action.RESCHEDULE)
    return _done(request, BulkAction("reschedule", due_ms=due_ms))


@endpoint("DELETE", _ONE, Action.CANCEL)
def cancel_task(request: Request) -> Outcome:
    """Cancel a task, and end its delay chain; or ask it to stop, if it runs and asks ``cancelled``."""
    _found(request, Action.CANCEL)
    return _done(request, BulkAction("cancel"))


def _not_waiting(request: Request) -> Problem:
    """No such task waits: 404. A caller that may see where it is reads that."""
    serve, task_id = serve_of(request), request.path_params["id"]
    place, sighting = changes.find_elsewhere(serve, caller_of(request), task_id)
    if not (place and sighting):
        detail = "no task with this id waits: it runs, has run, or was never sent"
        return Problem(404, detail, "not-delayed", id=task_id, outcome="not_delayed")
    found: dict[str, Any] = {"queue": sighting.queue} if sighting.queue else {}
    return Problem(404, sighting.advice, place.state.replace("_", "-"), id=task_id, outcome=place.state, **found)


def _found(request: Request, action: Action) -> list[DelayedTask]:
    return changes.waiting_tasks(serve_of(request), caller_of(request), request.path_params["id"], action)


def _done(request: Request, doing: BulkAction) -> Outcome:
    """Changes a task, and returns what became of it; raises a problem where it did not wait."""
    task_id = request.path_params["id"]
    word = changes.change_task(serve_of(request), caller_of(request), doing, task_id)
    if word == "not_delayed" or word == "dead_letter":
        raise _not_waiting(request)
    if word == "unreadable":
        detail = "the message of this task cannot be rewritten, so nothing changed"
        raise Problem(409, detail, "unreadable", id=task_id, outcome=word)
    done = Outcome(id=task_id, outcome=word)
    if doing.due_ms is not None and word == "rescheduled":
        done.due = iso(doing.due_ms)
    return done
