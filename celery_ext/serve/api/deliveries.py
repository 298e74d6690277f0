"""Consumers in any language: they take messages with a lease, and acknowledge, release or extend."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from redis.exceptions import ResponseError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.delays.durations import parse
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.content import content_of
from celery_ext.serve.api.delivery_models import (
    LONGEST_LEASE_S,
    LONGEST_WAIT_S,
    SHORTEST_LEASE_S,
    Acknowledged,
    Extend,
    Extended,
    Release,
    Released,
    Tags,
    Taken,
    TakeQuery,
)
from celery_ext.serve.leases import KnownQueues, LeaseGone, Lender, Settled, is_broadcast
from celery_ext.serve.long_poll import Line, LineFull, Want
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of
from kombu_delayq.errors import quoted
from kombu_delayq.message.times import moment_of

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
    lender = await run_in_threadpool(_lender, request, queue, queue in caller.queues)
    want = Want(
        queue,
        asked.max,
        lambda most: lender.lend(caller.name, queue, most, lease_s),
        lambda lent: lender.undo(caller.name, lent),
    )
    away = asyncio.ensure_future(_disconnected(request))
    try:
        lent = await _line(request).take(want, wait_s, away)
    except LineFull:
        detail = f"{MOST_WAITERS:,} callers wait for messages here already"
        raise Problem(503, detail, "too-many-wait", headers={"Retry-After": "1"}) from None
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        raise Problem(409, f"another key stands in the place of a list of queue {quoted(queue)}", "no-list") from None
    finally:
        if not away.cancel() and not away.cancelled() and (refused := away.exception()) is not None:
            raise refused  # the body was too large
    if lent is None:
        return _answer({"lease": None, "messages": []})
    lease = {"id": lent.lease, "ends": _iso(lent.ends_ms), "seconds": lease_s}
    return _answer({"lease": lease, "messages": [content_of(found, tag) for tag, found in lent.messages.items()]})


async def ack(request: Request) -> Response:
    """Removes messages for good."""
    asked = await _body(request, Tags)
    settled = await _with_lease(request, lambda lender, *lease: lender.ack(*lease, _once(asked.tags)))
    return _answer({"acknowledged": settled.done, "missing": settled.missing})


async def release(request: Request) -> Response:
    """Puts messages back into their queue: to be next, or after a delay."""
    asked = await _body(request, Release)

    def act(lender: Lender, caller: str, lease: str) -> Settled:
        return lender.release(caller, lease, _once(asked.tags), asked.delay)

    settled = await _with_lease(request, act)
    return _answer({"released": settled.done, "missing": settled.missing})


async def extend(request: Request) -> Response:
    """Lets a lease last for some time from now."""
    asked = await _body(request, Extend)
    ends_ms, held = await _with_lease(request, lambda lender, *lease: lender.extend(*lease, asked.seconds))
    lease = {"id": request.path_params["lease"], "ends": _iso(ends_ms), "seconds": asked.seconds}
    return _answer({"lease": lease, "held": held})


def stop_waiting(app: Starlette) -> None:
    """Answers all who wait for messages, with none, so that the server can stop; any thread may call it."""
    for loop, line in [*_lines(app).items()]:
        loop.call_soon_threadsafe(line.close)


def _lines(app: Starlette) -> WeakKeyDictionary[asyncio.AbstractEventLoop, Line]:
    """Returns the line of each event loop that runs the application."""
    lines: WeakKeyDictionary[asyncio.AbstractEventLoop, Line] = app.state._state.setdefault(
        "lines", WeakKeyDictionary()
    )
    return lines


def _line(request: Request) -> Line:
    lines, loop, serve = _lines(request.app), asyncio.get_running_loop(), serve_of(request)
    if loop not in lines:
        lines[loop] = Line(lambda queues: serve.store.taking.ready(queues), MOST_WAITERS)
    return lines[loop]


def _lender(request: Request, queue: str, is_named: bool) -> Lender:
    """Connects, and returns what lends messages of a queue.

    Args:
        request: Any request for this queue.
        queue: Name of the queue.
        is_named: Whether the token names the queue itself, and not a pattern: then it needs not be known already.

    Raises:
        Problem: There is no such queue, or none from which messages can be taken.
    """
    serve = serve_of(request)
    app = serve.broker.app
    known: KnownQueues = request.app.state._state.setdefault("known_queues", KnownQueues())
    if is_broadcast(app, queue):
        raise bad_request(f"{quoted(queue)} is a queue of broadcasts, which has no messages to take", "broadcast-queue")
    if not is_named and not known.has(app, serve.store, queue):
        raise Problem(
            404, f"nobody has published to a queue {quoted(queue)} yet, nor does the token name it", "no-such-queue"
        )
    return Lender(serve.store)


async def _with_lease(request: Request, act: Callable[[Lender, str, str], T]) -> T:
    """Does something with the caller's lease, in a thread."""
    serve, caller, lease = serve_of(request), caller_of(request), str(request.path_params["lease"])
    try:
        return await run_in_threadpool(lambda: act(Lender(serve.store), caller.name, lease))
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


def _iso(moment_ms: float) -> str:
    return moment_of(moment_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(content: dict[str, Any]) -> Response:
    return Response(json.dumps(content), media_type="application/json", headers={"Cache-Control": "no-store"})
