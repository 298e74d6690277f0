"""``POST /v1/tasks`` and ``POST /v1/tasks:batch``."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from time import time
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.publish import Call
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import (
    MAX_BATCH,
    Answer,
    Count,
    Endpoints,
    Iso,
    ProblemDetails,
    Strict,
    answer,
    iso,
    item_of,
)
from celery_ext.serve.api.idempotency import Attempt
from celery_ext.serve.api.publisher import Item, Publisher, Result, SentTask, send_alone
from celery_ext.serve.api.recipes import Recipes
from celery_ext.serve.api.task_request import TaskRequest
from celery_ext.serve.problems import Problem
from celery_ext.serve.service import Serve, serve_of
from celery_ext.waiting import by_id
from kombu_delayq.message import ADD, IF_WAITING, moment_of, ms_of, new_id

#: An item of a batch should be a task, and may be anything: each has an outcome of its own.
_ITEM = {"anyOf": [{"$ref": "#/components/schemas/TaskRequest"}, {}]}


class BatchRequest(Strict):
    """Tasks to enqueue at once.

    Attributes:
        tasks: The tasks. Each has an outcome of its own: an item may also be wrong.
    """

    tasks: Annotated[list[Any], Meta(min_length=1, max_length=MAX_BATCH, extra_json_schema={"items": _ITEM})]


#: What becomes of a task that Redis takes; the words of ``if_waiting`` among them.
_Taken = Literal["delayed", "queued", "kept", "replaced"]


class Enqueued(Answer):
    """A task that Redis has.

    Attributes:
        id: Task id.
        task: Its name.
        outcome: ``delayed`` (it waits until it is due), ``queued`` (it is in its queue), ``kept`` (one with its id
            waits already, and this one was not enqueued) or ``replaced`` (it waits in place of one with its id).
        queue: Its queue; null if it went to an exchange that may have several.
        due: When it is due; null at once, and for ``kept``.
    """

    id: str
    task: str
    outcome: _Taken
    queue: str | None
    due: Iso | None


class BatchItem(Answer):
    """What became of an item of a batch.

    Attributes:
        status: HTTP status that the item alone would have had.
        outcome: As for a single task; or ``refused`` (nothing was enqueued) or ``unknown`` (Redis may have it).
        id: Task id; absent if the item was refused before it had one.
        task: Name of the task.
        queue: Its queue.
        due: When it is due.
        problem: Why it was refused, or is unknown.
    """

    status: int
    outcome: Literal[_Taken, "refused", "unknown"]
    id: str | UnsetType = UNSET
    task: str | UnsetType = UNSET
    queue: str | UnsetType | None = UNSET
    due: Iso | UnsetType | None = UNSET
    problem: ProblemDetails | UnsetType = UNSET


class BatchAnswer(Answer):
    """What became of a batch.

    Attributes:
        enqueued: Number of tasks that Redis has.
        results: An outcome for each item, in order.
    """

    enqueued: Count
    results: list[BatchItem]


endpoint = Endpoints("Enqueue")


@endpoint("POST", "/v1/tasks", Action.ENQUEUE, answers=Enqueued, status=201, idempotent=True)
async def enqueue(request: Request, body: TaskRequest, attempt: Attempt) -> Response:
    """Enqueue a task."""
    serve = serve_of(request)
    item = await _ordered(serve, caller_of(request), body, attempt, time() * 1000)
    found = await _waiting(serve, [item]) if attempt.is_again else {}
    if item.id in found:
        return _created(request, item, SentTask(item.id, found[item.id]))
    [result] = await _published(serve, [item])
    if isinstance(result, Problem):  # says which task it is about, so that its caller can look for it
        raise result.about(task=item.task, **({"id": item.id} if item.id else {}))
    return _created(request, item, result)


@endpoint("POST", "/v1/tasks:batch", Action.ENQUEUE, idempotent=True)
async def enqueue_batch(request: Request, body: BatchRequest, attempt: Attempt) -> BatchAnswer:
    """Enqueue up to 1,000 tasks. Each has an outcome of its own."""
    serve, caller = serve_of(request), caller_of(request)
    items: list[Item | Problem] = []
    now_ms = time() * 1000
    for number, raw in enumerate(body.tasks):
        try:
            wanted = item_of(raw, TaskRequest)
            items.append(await _ordered(serve, caller, wanted, attempt, now_ms, number))
        except Problem as problem:
            items.append(_rooted(problem, f"$.tasks[{number}]"))
    good = [item for item in items if isinstance(item, Item)]
    found = await _waiting(serve, good) if attempt.is_again else {}
    results = iter(await _published(serve, [item for item in good if item.id not in found]))
    answers = [_item_answer(item, found, results) for item in items]
    return BatchAnswer(enqueued=sum(one.status == 201 for one in answers), results=answers)


async def _ordered(
    serve: Serve, caller: Caller, wanted: TaskRequest, attempt: Attempt, now_ms: float, number: int = 0
) -> Item:
    """Returns what has to be published for a task, after all checks."""
    wanted.check()
    recipes = serve.broker.part(Recipes)
    known = recipes.known(wanted)
    recipe = known if known is not None else await run_in_threadpool(recipes.of, wanted, caller)
    recipe.route.check(caller, wanted.task)
    if (wanted.id or wanted.waiting_key) and "*" not in caller.tasks:
        mode = recipe.target.options.get(IF_WAITING) or recipe.target.mode  # of the request, or else of the task
        if mode not in (None, ADD):
            why = "a task of another name may wait under this key or id, so it needs a token for all tasks"
            raise Problem(403, f"{caller.name} may not use if_waiting={mode!r}: {why}", "not-allowed")
    base_ms = now_ms if attempt.base_ms is None else attempt.base_ms
    expires, eta = wanted.expires, wanted.eta
    if isinstance(expires, float) and attempt.base_ms is not None:
        expires = moment_of(base_ms + expires * 1000)
    expires = expires if isinstance(expires, float) else _in_utc(expires)
    if wanted.countdown is not None:
        eta = moment_of(base_ms + wanted.countdown * 1000)
    task_id = wanted.id or attempt.task_id(number)
    if wanted.waiting_key is not None:
        task_id = new_id(wanted.waiting_key, task_id)
    call = Call(wanted.args, wanted.kwargs, eta=_in_utc(eta), task_id=task_id, limit=wanted.limit)
    return Item(recipe, call, expires, wanted.headers)


def _in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment_of(ms_of(moment))


async def _published(serve: Serve, items: Sequence[Item]) -> list[Result]:
    """Publishes tasks: all that can be in a page with others, and the rest one by one, as Celery does."""
    together = [item for item in items if item.recipe.messages is not None]
    future = serve.broker.part(Publisher).publish(together) if together else None
    alone = [item for item in items if item.recipe.messages is None]
    sent = iter(await run_in_threadpool(lambda: [send_alone(item) for item in alone]) if alone else [])
    paged = iter(await future if future is not None else [])
    return [next(sent if item.recipe.messages is None else paged) for item in items]


async def _waiting(serve: Serve, items: Sequence[Item]) -> dict[str, float]:
    """Returns the due times of those tasks that wait already, by id: an earlier try has enqueued them."""
    ids = [item.id for item in items]
    found = await run_in_threadpool(lambda: list(by_id.get(serve.store, ids)))
    return {task_id: messages[0].due_ms for task_id, messages in found if messages}


def _created(request: Request, item: Item, sent: SentTask) -> Response:
    where = f"{request.scope.get('root_path', '')}/v1/tasks/{quote(sent.id, safe='')}"
    return answer(_enqueued(item, sent), 201, {"Location": where})


def _enqueued(item: Item, sent: SentTask) -> Enqueued:
    due_ms = None if sent.became == "kept" else sent.due_ms
    outcome: _Taken = "queued" if due_ms is None else "delayed"
    if sent.became is not None and sent.became != "added":
        outcome = sent.became
    due = None if due_ms is None else iso(due_ms)
    return Enqueued(id=sent.id, task=item.task, outcome=outcome, queue=item.recipe.route.queue, due=due)


def _item_answer(item: Item | Problem, found: Mapping[str, float], results: Iterator[Result]) -> BatchItem:
    """Returns what became of an item of a batch, and takes it from the results unless it waited already."""
    if isinstance(item, Problem):
        return _refused_item(item)
    done = SentTask(item.id, found[item.id]) if item.id in found else next(results)
    if isinstance(done, Problem):
        refused = _refused_item(done)
        refused.task, refused.id = item.task, item.id or UNSET
        return refused
    return BatchItem(status=201, **asdict(_enqueued(item, done)))


def _refused_item(problem: Problem) -> BatchItem:
    is_unknown = problem.extra.get("outcome") == "unknown"
    details = msgspec.convert(problem.as_dict(), ProblemDetails)
    return BatchItem(status=problem.status, outcome="unknown" if is_unknown else "refused", problem=details)


def _rooted(problem: Problem, at: str) -> Problem:
    """Returns the problem of an item as one of the whole request."""
    errors = problem.extra.get("errors", ())
    moved = [{**error, "path": error["path"].replace("$", at, 1)} for error in errors]
    return problem.about(errors=moved) if moved else problem
