"""Consumers in any language: they take messages with a lease, and acknowledge, release or extend."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta, Struct
from redis.exceptions import ResponseError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.delays.durations import MAX_S, parse
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.content import content_of
from celery_ext.serve.api.exchange import answer, iso
from celery_ext.serve.leases import MOST, KnownQueues, LeaseGone, Leases, Settled, is_broadcast
from celery_ext.serve.long_poll import TakeRequest, TooManyWait, WaitingRequests
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import ServeBroker, serve_of
from kombu_delayq.errors import quoted

#: Longest wait of a take, and longest and shortest lease, in s.
LONGEST_WAIT_S, LONGEST_LEASE_S, SHORTEST_LEASE_S = 60.0, 3600.0, 1.0
_Tag = Annotated[str, Meta(pattern="^[1-9][0-9]{0,2}$", description="Tag of a message, as `take` gave it.")]


class TakeQuery(Struct, forbid_unknown_fields=True):
    """How many messages to take, for how long, and how long to wait for them."""

    wait: Annotated[str, Meta(description="How long to wait if there are none, up to 60s: `20s`, or `20`.")] = "0s"
    max: Annotated[int, Meta(ge=1, le=MOST, description="The most messages.")] = 1
    lease: Annotated[str, Meta(description="Length of the lease, 1s to 1h.")] = "60s"


class Tags(Struct, forbid_unknown_fields=True):
    """Which messages of a lease are meant."""

    tags: Annotated[list[_Tag], Meta(min_length=1, max_length=MOST)]


class Release(Struct, forbid_unknown_fields=True):
    """Which messages go back to their queue."""

    tags: Annotated[list[_Tag], Meta(min_length=1, max_length=MOST)]
    delay: (
        Annotated[float, Meta(gt=0, le=MAX_S, description="After how many s they come again; without it, at once.")]
        | None
    ) = None


class Extend(Struct, forbid_unknown_fields=True):
    """For how long a lease lasts, from now."""

    seconds: Annotated[float, Meta(ge=SHORTEST_LEASE_S, le=LONGEST_LEASE_S)]


class Lease(Struct):
    """A lease: what is not acknowledged before it ends goes back to its queue."""

    id: str
    ends: Annotated[str, Meta(description="By the clock of Redis, ISO 8601 in UTC.")]
    seconds: Annotated[float, Meta(description="How long it lasted when this answer was made.")]


class Delivery(Struct, omit_defaults=True):
    """A message. A task has `args`, `kwargs` and `embed`, a plain message `content`; one not decoded has `body`."""

    tag: str
    task: str | None
    id: str | None
    redelivered: bool
    delivery_count: Annotated[int, Meta(description="How often it was in the hands of a consumer that died.")]
    retries: int
    priority: int
    expires: str | None
    expired: Annotated[bool, Meta(description="Whether it expires in the past: a Celery worker would not run it.")]
    headers: dict[str, Any]
    reply_to: str | None
    content_type: str | None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    embed: Annotated[dict[str, Any] | None, Meta(description="Callbacks, chain and chord of the task.")] = None
    content: Any = None
    content_encoding: str | None = None
    body: Annotated[str | None, Meta(description="The body in base64.")] = None


class Taken(Struct):
    """Messages in the order in which they were in their queue; no lease where there are none."""

    lease: Lease | None
    messages: list[Delivery]


class Acknowledged(Struct):
    """What is done, and what the lease held no more: it was acknowledged before, or has gone back to its queue."""

    acknowledged: list[str]
    missing: list[str]


class Released(Struct):
    """What has gone back now, and what the lease held no more."""

    released: list[str]
    missing: list[str]


class Extended(Struct):
    """The lease as it is now, and what it still holds."""

    lease: Lease
    held: list[str]


T = TypeVar("T")

#: How many callers may wait for messages of one process; others still get a connection then.
MOST_WAITERS = 800


def routes() -> list[ActionRoute]:
    """Returns the routes for consumers."""
    rows: list[tuple[str, Any, str, Any, Any, Any]] = [
        ("/v1/queues/{queue:name}:take", take, "Take messages, with a lease.", TakeQuery, None, Taken),
        ("/v1/leases/{lease:name}:ack", ack, "Acknowledge messages: they are done.", None, Tags, Acknowledged),
        ("/v1/leases/{lease:name}:release", release, "Put messages back.", None, Release, Released),
        ("/v1/leases/{lease:name}:extend", extend, "Let a lease end later.", None, Extend, Extended),
    ]
    return [
        ActionRoute(
            path, handler, Action.CONSUME, method="POST", doc=Doc(summary, query, body, {200: answer}, "Consume")
        )
        for path, handler, summary, query, body, answer in rows
    ]


async def take(request: Request) -> Response:
    """Answers with messages of a queue as soon as there are any, or without any when the wait is over."""
    caller, queue = caller_of(request), str(request.path_params["queue"])
    caller.check(Action.CONSUME, queue=queue)
    if "*" not in caller.tasks:
        raise Problem(403, "a token that names tasks cannot consume: a queue hands out what is next", "not-allowed")
    asked = _query(request)
    wait_s = _seconds("wait", asked.wait, 0, LONGEST_WAIT_S)
    lease_s = _seconds("lease", asked.lease, SHORTEST_LEASE_S, LONGEST_LEASE_S)
    leases = await run_in_threadpool(_leases_of, request, queue, queue in caller.queues)
    wanted = TakeRequest(
        queue,
        asked.max,
        lambda most: leases.receive(caller.name, queue, most, lease_s),
        lambda received: leases.undo(caller.name, received),
    )
    away = asyncio.ensure_future(_disconnected(request))
    try:
        received = await _waiting(request).take(wanted, wait_s, away)
    except TooManyWait:
        detail = f"{MOST_WAITERS:,} callers wait for messages here already"
        raise Problem(503, detail, "too-many-wait", headers={"Retry-After": "1"}) from None
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        raise Problem(409, f"another key stands in the place of a list of queue {quoted(queue)}", "no-list") from None
    finally:
        if not away.cancel() and not away.cancelled() and (refused := away.exception()) is not None:
            raise refused  # the body was too large
    if received is None:
        return answer({"lease": None, "messages": []})
    lease = {"id": received.lease, "ends": iso(received.ends_ms), "seconds": lease_s}
    return answer({"lease": lease, "messages": [content_of(found, tag) for tag, found in received.messages.items()]})


async def ack(request: Request) -> Response:
    """Removes messages for good."""
    asked = await _body(request, Tags)
    settled = await _with_lease(request, lambda leases, *lease: leases.ack(*lease, _once(asked.tags)))
    return answer({"acknowledged": settled.done, "missing": settled.missing})


async def release(request: Request) -> Response:
    """Puts messages back into their queue: to be next, or after a delay."""
    asked = await _body(request, Release)

    def act(leases: Leases, caller: str, lease: str) -> Settled:
        return leases.release(caller, lease, _once(asked.tags), asked.delay)

    settled = await _with_lease(request, act)
    return answer({"released": settled.done, "missing": settled.missing})


async def extend(request: Request) -> Response:
    """Lets a lease last for some time from now."""
    asked = await _body(request, Extend)
    ends_ms, held = await _with_lease(request, lambda leases, *lease: leases.extend(*lease, asked.seconds))
    lease = {"id": request.path_params["lease"], "ends": iso(ends_ms), "seconds": asked.seconds}
    return answer({"lease": lease, "held": held})


def stop_waiting(app: Starlette) -> None:
    """Answers all who wait for messages, with none, so that the server can stop; any thread may call it."""
    for loop, requests in [*app.state.serve.broker.part(_waiting_by_loop).items()]:
        loop.call_soon_threadsafe(requests.close)


def _waiting_by_loop(broker: ServeBroker) -> WeakKeyDictionary[asyncio.AbstractEventLoop, WaitingRequests]:
    """Makes room for the requests that wait, by the event loop that runs the application."""
    return WeakKeyDictionary()


def _waiting(request: Request) -> WaitingRequests:
    loop, broker = asyncio.get_running_loop(), serve_of(request).broker
    by_loop = broker.part(_waiting_by_loop)
    if loop not in by_loop:
        by_loop[loop] = WaitingRequests(lambda queues: broker.store.fetching.available(queues), MOST_WAITERS)
    return by_loop[loop]


def _leases_of(request: Request, queue: str, is_named: bool) -> Leases:
    """Connects, and returns the leases of a queue's messages.

    Args:
        request: Any request for this queue.
        queue: Name of the queue.
        is_named: Whether the token names the queue itself, and not a pattern: then it needs not be known already.

    Raises:
        Problem: There is no such queue, or none from which messages can be taken.
    """
    broker = serve_of(request).broker
    if is_broadcast(broker.app, queue):
        raise bad_request(f"{quoted(queue)} is a queue of broadcasts, which has no messages to take", "broadcast-queue")
    if not is_named and not broker.part(KnownQueues).has(queue):
        raise Problem(
            404, f"nobody has published to a queue {quoted(queue)} yet, nor does the token name it", "no-such-queue"
        )
    return Leases(broker.store)


async def _with_lease(request: Request, act: Callable[[Leases, str, str], T]) -> T:
    """Does something with the caller's lease, in a thread."""
    serve, caller, lease = serve_of(request), caller_of(request), str(request.path_params["lease"])
    try:
        return await run_in_threadpool(lambda: act(Leases(serve.store), caller.name, lease))
    except LeaseGone:
        detail = "the lease has ended, or holds no message any more; what was not acknowledged goes back to its queue"
        raise Problem(410, detail, "lease-ended") from None
    except ValueError as error:
        raise bad_request(str(error), "bad-tag") from None


async def _disconnected(request: Request) -> None:
    """Returns when the caller has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_request(str(error), "bad-body") from None


def _query(request: Request) -> TakeQuery:
    try:
        return msgspec.convert(dict(request.query_params), TakeQuery, strict=False)
    except msgspec.ValidationError as error:
        raise bad_request(str(error), "bad-parameter") from None


def _seconds(name: str, text: str, least: float, most: float) -> float:
    """Reads a duration, also one without a unit, which is in s."""
    try:
        seconds = parse(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError as error:
        raise bad_request(f"{name}: {error}", "bad-parameter") from None
    if not least <= seconds <= most:
        raise bad_request(f"{name}={text} is not from {least:g}s to {most:g}s", "bad-parameter")
    return seconds


def _once(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tags))
