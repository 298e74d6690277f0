"""``POST /v1/tasks`` and ``POST /v1/tasks:batch``."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from time import time
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.delays.chain import DelayChain
from celery_ext.publish.recipe import Call
from celery_ext.serve.access.identity import Action, Caller, caller_of
from celery_ext.serve.api.exchange import (
    MAX_BATCH,
    Answer,
    Count,
    Iso,
    ProblemDetails,
    Strict,
    answer,
    body_of,
    invalid_field,
    iso,
    item_of,
)
from celery_ext.serve.api.idempotency import Attempt, once
from celery_ext.serve.api.publisher import Item, Publisher, Result, Sent, send_alone
from celery_ext.serve.api.recipes import Recipes, TaskRequest
from celery_ext.serve.problems import Problem
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import Serve, serve_of
from celery_ext.waiting import by_id
from kombu_delayq.errors import InvalidDelayChain
from kombu_delayq.message.due import moment_of, ms_of

#: An item of a batch should be a task, and may be anything: each has an outcome of its own.
_ITEM = {"anyOf": [{"$ref": "#/components/schemas/TaskRequest"}, {}]}


class BatchRequest(Strict):
    """Tasks to enqueue at once.

    Attributes:
        tasks: The tasks. Each has an outcome of its own: an item may also be wrong.
    """

    tasks: Annotated[list[Any], Meta(min_length=1, max_length=MAX_BATCH, extra_json_schema={"items": _ITEM})]


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
    outcome: Literal["delayed", "queued", "kept", "replaced"]
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
    outcome: Literal["delayed", "queued", "kept", "replaced", "refused", "unknown"]
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


_TAG = "Enqueue"


def routes() -> list[ActionRoute]:
    """Returns the routes that enqueue tasks."""
    one = Doc("Enqueue a task.", None, TaskRequest, {201: Enqueued}, _TAG, idempotent=True)
    many = Doc("Enqueue up to 1,000 tasks.", None, BatchRequest, {200: BatchAnswer}, _TAG, idempotent=True)
    return [
        ActionRoute("/v1/tasks", enqueue, Action.ENQUEUE, method="POST", doc=one),
        ActionRoute("/v1/tasks:batch", enqueue_batch, Action.ENQUEUE, method="POST", doc=many),
    ]


class Order(NamedTuple):
    """A task that is wanted, and what has to be published for it."""

    wanted: TaskRequest
    item: Item

    @property
    def id(self) -> str:
        """Id of the task; empty if it gets a random one."""
        return self.item.call.task_id or ""


async def enqueue(request: Request) -> Response:
    """Enqueues a task."""
    wanted = body_of(request, await request.body(), TaskRequest)

    async def work(attempt: Attempt) -> Response:
        serve = serve_of(request)
        order = await _ordered(serve, caller_of(request), wanted, attempt, time() * 1000)
        found = await _waiting(serve, [order]) if attempt.is_again else {}
        if order.id in found:
            return _created(request, order, Sent(order.id, found[order.id]))
        [result] = await _published(serve, [order])
        if isinstance(result, Problem):
            raise _named(result, order)
        return _created(request, order, result)

    return await once(request, work)


async def enqueue_batch(request: Request) -> Response:
    """Enqueues many tasks. Each has an outcome of its own."""
    wanted = body_of(request, await request.body(), BatchRequest)

    async def work(attempt: Attempt) -> Response:
        serve, caller = serve_of(request), caller_of(request)
        orders: list[Order | Problem] = []
        now_ms = time() * 1000
        for number, raw in enumerate(wanted.tasks):
            try:
                item = item_of(raw, TaskRequest, "$")
                orders.append(await _ordered(serve, caller, item, attempt, now_ms, number))
            except Problem as problem:
                orders.append(_rooted(problem, f"$.tasks[{number}]"))
        good = [order for order in orders if isinstance(order, Order)]
        found = await _waiting(serve, good) if attempt.is_again else {}
        new = [order for order in good if order.id not in found]
        results = iter(await _published(serve, new))
        items = [_item_answer(order, found, results) for order in orders]
        return answer(BatchAnswer(enqueued=sum(item.status == 201 for item in items), results=items))

    return await once(request, work)


async def _ordered(
    serve: Serve, caller: Caller, wanted: TaskRequest, attempt: Attempt, now_ms: float, number: int = 0
) -> Order:
    """Returns what has to be published for a task, after all checks."""
    if wanted.countdown is not None and wanted.eta is not None:
        raise invalid_field("$", "give either countdown or eta, not both")
    if wanted.if_waiting in ("keep", "replace") and wanted.id is None:
        raise invalid_field("$.id", f"if_waiting={wanted.if_waiting!r} needs an id")
    if wanted.delay_chain is not None:
        try:
            DelayChain.parse(wanted.delay_chain)
        except InvalidDelayChain as error:
            raise invalid_field("$.delay_chain", str(error)) from None
    recipes = serve.broker.part(Recipes)
    known = recipes.known(wanted)
    recipe = known if known is not None else await run_in_threadpool(recipes.of, wanted, caller)
    recipe.route.check(caller, wanted.task)
    expires = wanted.expires
    if isinstance(expires, float) and attempt.base_ms is not None:
        expires = moment_of(attempt.base_ms + expires * 1000)
    expires = expires if isinstance(expires, float) else _in_utc(expires)
    call = Call(wanted.args, wanted.kwargs, eta=_in_utc(wanted.eta), task_id=wanted.id or attempt.task_id(number))
    if wanted.countdown is None:
        return Order(wanted, Item(recipe, call, expires, wanted.headers))
    base_ms = now_ms if attempt.base_ms is None else attempt.base_ms
    call = call._replace(eta=_in_utc(moment_of(base_ms + wanted.countdown * 1000)))
    return Order(wanted, Item(recipe, call, expires, wanted.headers))


def _in_utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment_of(ms_of(moment))


async def _published(serve: Serve, orders: Sequence[Order]) -> list[Result]:
    """Publishes tasks: all that can be in a page with others, and the rest one by one, as Celery does."""
    together = [order.item for order in orders if order.item.recipe.messages is not None]
    future = serve.broker.part(Publisher).publish(together) if together else None
    alone = [order.item for order in orders if order.item.recipe.messages is None]
    sent = iter(await run_in_threadpool(lambda: [send_alone(item) for item in alone]) if alone else [])
    paged = iter(await future if future is not None else [])
    return [next(sent if order.item.recipe.messages is None else paged) for order in orders]


async def _waiting(serve: Serve, orders: Sequence[Order]) -> dict[str, float]:
    """Returns the due times of those tasks that wait already, by id: an earlier try has enqueued them."""
    ids = [order.id for order in orders]
    found = await run_in_threadpool(lambda: list(by_id.get(serve.store, ids)))
    return {task_id: messages[0].due_ms for task_id, messages in found if messages}


def _created(request: Request, order: Order, sent: Sent) -> Response:
    where = f"{request.scope.get('root_path', '')}/v1/tasks/{quote(sent.id, safe='')}"
    return answer(_enqueued(order, sent), 201, {"Location": where})


def _enqueued(order: Order, sent: Sent) -> Enqueued:
    due_ms = None if sent.became == "kept" else sent.due_ms
    outcome: Literal["delayed", "queued", "kept", "replaced"] = "queued" if due_ms is None else "delayed"
    if sent.became in ("kept", "replaced"):
        outcome = sent.became
    return Enqueued(
        id=sent.id,
        task=order.wanted.task,
        outcome=outcome,
        queue=order.item.recipe.route.queue,
        due=None if due_ms is None else iso(due_ms),
    )


def _item_answer(order: Order | Problem, found: Mapping[str, float], results: Iterator[Result]) -> BatchItem:
    """Returns what became of an item of a batch, and takes it from the results unless it waited already."""
    if isinstance(order, Problem):
        return _refused_item(order)
    done = Sent(order.id, found[order.id]) if order.id in found else next(results)
    if isinstance(done, Problem):
        item = _refused_item(done)
        item.task = order.wanted.task
        if order.id:
            item.id = order.id
        return item
    answered = _enqueued(order, done)
    return BatchItem(
        status=201,
        outcome=answered.outcome,
        id=answered.id,
        task=answered.task,
        queue=answered.queue,
        due=answered.due,
    )


def _refused_item(problem: Problem) -> BatchItem:
    is_unknown = problem.extra.get("outcome") == "unknown"
    details = msgspec.convert(problem.as_dict(), ProblemDetails)
    return BatchItem(status=problem.status, outcome="unknown" if is_unknown else "refused", problem=details)


def _named(problem: Problem, order: Order) -> Problem:
    """Returns a problem that says which task it is about, so that its caller can look for it."""
    extra = {**problem.extra, "task": order.wanted.task, **({"id": order.id} if order.id else {})}
    return Problem(problem.status, problem.detail, problem.kind, headers=problem.headers, **extra)


def _rooted(problem: Problem, at: str) -> Problem:
    """Returns the problem of an item as one of the whole request."""
    errors = problem.extra.get("errors")
    if errors is None:
        return problem
    moved = [{**error, "path": error["path"].replace("$", at, 1)} for error in errors]
    return Problem(problem.status, problem.detail, problem.kind, headers=problem.headers, errors=moved)
