"""``GET /v1/tasks``: waiting tasks, page by page, or as a stream while they are searched for."""

from collections.abc import Iterator
from math import inf
from time import monotonic

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import answer, as_json, query_of
from celery_ext.serve.api.models.answers import TaskList
from celery_ext.serve.api.models.requests import TaskQuery
from celery_ext.serve.api.tasks.shape import task_of
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.search import Done, Progress, Skipped, search
from celery_ext.waiting.search import page as page_of
from celery_ext.waiting.selection import Selection
from kombu_delayq.message.times import ms_of
from kombu_delayq.store import OperatorStore

NDJSON = "application/x-ndjson"
#: How long lines of a stream may wait for others, in s, and how many do.
_TOGETHER_S, _TOGETHER = 0.1, 50


def routes() -> list[ActionRoute]:
    """Returns the route."""
    doc = Doc("List waiting tasks, the next due first.", query=TaskQuery, answers={200: TaskList}, tag="Tasks")
    return [ActionRoute("/v1/tasks", list_tasks, Action.READ, doc=doc)]


def list_tasks(request: Request) -> Response:
    """Answers with a page of tasks; with a stream of lines if the caller accepts ``application/x-ndjson``."""
    wanted, serve, caller = query_of(request, TaskQuery), serve_of(request), caller_of(request)
    hidden, store = serve.settings.hide_arguments, serve.store
    if wanted.from_ is not None and wanted.to is not None and wanted.from_ >= wanted.to:
        return answer(TaskList(tasks=[], cursor=None))
    selection = selection_of(store, caller, wanted, hidden=hidden)
    try:
        if NDJSON in request.headers.get("accept", ""):
            events = search(store, selection, wanted.cursor, limit=wanted.limit)
            return StreamingResponse(_chunks(_lines(events, caller, store.now_ms(), hidden=hidden)), media_type=NDJSON)
        found = page_of(store, selection, wanted.cursor, wanted.limit)
    except ValueError as error:
        raise bad_request(str(error), "bad-cursor") from None
    now_ms = store.now_ms()
    tasks = [task_of(task, now_ms, hidden=hidden) for task in found.tasks if _may_see(caller, task)]
    return answer(TaskList(tasks=tasks, cursor=found.cursor))


def selection_of(
    store: OperatorStore, caller: Caller, wanted: TaskQuery, *, hidden: bool, action: Action = Action.READ
) -> Selection:
    """Returns what a query or a filter means for a caller.

    Args:
        store: The broker's store.
        caller: Its queues are the only ones.
        wanted: The query.
        hidden: Whether arguments are hidden; then nobody may search them either.
        action: What the caller wants to do.

    Raises:
        Problem: 400 for a wrong filter, 403 for a queue that is not the caller's.
    """
    if wanted.q is not None and hidden:
        raise Problem(403, "this server hides arguments, so they cannot be searched", "arguments-hidden")
    queues: tuple[str, ...] | None = None
    if wanted.queue is not None:
        caller.check(action, queue=wanted.queue)
        queues = (wanted.queue,)
    elif "*" not in caller.queues:
        queues = tuple(caller.queues_of(store.queues.names()))
    try:
        return Selection(
            queues=queues,
            from_ms=-inf if wanted.from_ is None else ms_of(wanted.from_),
            to_ms=inf if wanted.to is None else ms_of(wanted.to),
            task=wanted.task,
            q=wanted.q,
        )
    except ValueError as error:
        raise bad_request(str(error), "bad-filter") from None


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
