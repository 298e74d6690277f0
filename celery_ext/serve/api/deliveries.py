"""Consumers in any language: they take messages with a lease, and acknowledge, release or extend."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Meta, Struct
from redis.exceptions import ResponseError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from celery_ext.delays import MAX_S, parse
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.content import content_of
from celery_ext.serve.api.exchange import Answer, Endpoints, Strict, iso
from celery_ext.serve.leases import MOST, HttpLeases, LeaseGone, is_broadcast
from celery_ext.serve.long_poll import TakeRequest, TooManyWait, WaitingRequests
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.service import ServeBroker, serve_of
from kombu_delayq.errors import InvalidQueueName, quoted

#: Longest wait of a take, and longest and shortest lease, in s.
LONGEST_WAIT_S, LONGEST_LEASE_S, SHORTEST_LEASE_S = 60.0, 3600.0, 1.0
_Tag = Annotated[str, Meta(pattern="^[1-9][0-9]{0,2}$", description="Tag of a message, as `take` gave it.")]


class TakeQuery(Strict):
    """How many messages to take, for how long, and how long to wait for them.

    Attributes:
        wait: How long to wait if there are none, up to 60s: ``20s``, or ``20``.
        max: The most messages.
        lease: Length of the lease, 1s to 1h.
    """

    wait: str = "0s"
    max: Annotated[int, Meta(ge=1, le=MOST)] = 1
    lease: str = "60s"


class Tags(Strict):
    """Which messages of a lease are meant.

    Attributes:
        tags: Their tags.
    """

    tags: Annotated[list[_Tag], Meta(min_length=1, max_length=MOST)]

    @property
    def once(self) -> list[str]:
        """The tags, each once."""
        return list(dict.fromkeys(self.tags))


class Release(Tags):
    """Which messages go back to their queue.

    Attributes:
        tags: Their tags.
        delay: After how many s they come again; without it, at once.
    """

    delay: Annotated[float, Meta(gt=0, le=MAX_S)] | None = None


class Extend(Strict):
    """For how long a lease lasts, from now.

    Attributes:
        seconds: How long, in s.
    """

    seconds: Annotated[float, Meta(ge=SHORTEST_LEASE_S, le=LONGEST_LEASE_S)]


class Lease(Answer):
    """A lease: what is not acknowledged before it ends goes back to its queue.

    Attributes:
        id: Its name.
        ends: When it ends by the clock of Redis, ISO 8601 in UTC.
        seconds: How long it lasted when this answer was made.
    """

    id: str
    ends: str
    seconds: float


class Delivery(Struct, omit_defaults=True):
    """A message. A task has `args`, `kwargs` and `embed`, a plain message `content`; one not decoded has `body`.

    Attributes:
        delivery_count: How often it was in the hands of a consumer that died.
        expired: Whether it expires in the past: a Celery worker would not run it.
        embed: Callbacks, chain and chord of the task.
        body: The body in base64.
    """

    tag: str
    task: str | None
    id: str | None
    redelivered: bool
    delivery_count: int
    retries: int
    priority: int
    expires: str | None
    expired: bool
    headers: dict[str, Any]
    reply_to: str | None
    content_type: str | None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    embed: dict[str, Any] | None = None
    content: Any = None
    content_encoding: str | None = None
    body: str | None = None


class Taken(Answer):
    """Messages in the order in which they were in their queue; no lease where there are none.

    Attributes:
        lease: Their lease.
        messages: The messages.
    """

    lease: Lease | None
    messages: list[Delivery]


class Acknowledged(Answer):
    """What is done, and what the lease held no more: it was acknowledged before, or has gone back to its queue.

    Attributes:
        acknowledged: Tags of what is done.
        missing: Tags of what the lease held no more.
    """

    acknowledged: list[str]
    missing: list[str]


class Released(Answer):
    """What has gone back now, and what the lease held no more.

    Attributes:
        released: Tags of what has gone back.
        missing: Tags of what the lease held no more.
    """

    released: list[str]
    missing: list[str]


class Extended(Answer):
    """The lease as it is now, and what it still holds.

    Attributes:
        lease: The lease.
        held: Tags of what it holds.
    """

    lease: Lease
    held: list[str]


T = TypeVar("T")

#: How many callers may wait for messages of one process; others still get a connection then.
MOST_WAITERS = 800


endpoint = Endpoints("Consume")
_LEASE = "/v1/leases/{lease:name}"


@endpoint("POST", "/v1/queues/{queue:name}:take", Action.CONSUME, answers=Taken)
async def take(request: Request, query: TakeQuery) -> dict[str, Any]:
    """Take messages, with a lease.

    The answer has messages as soon as there are any, or none when the wait is over.
    """
    caller, queue = caller_of(request), str(request.path_params["queue"])
    caller.check(Action.CONSUME, queue=queue)
    if "*" not in caller.tasks:
        raise Problem(403, "a token that names tasks cannot consume: a queue hands out what is next", "not-allowed")
    wait_s = _seconds("wait", query.wait, 0, LONGEST_WAIT_S)
    lease_s = _seconds("lease", query.lease, SHORTEST_LEASE_S, LONGEST_LEASE_S)
    leases = await run_in_threadpool(_leases_of, request, queue, queue in caller.queues)
    wanted = TakeRequest(
        queue,
        query.max,
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
        return {"lease": None, "messages": []}
    lease = {"id": received.lease, "ends": iso(received.ends_ms), "seconds": lease_s}
    messages = received.messages.items()  # in a thread: a body may take long to read, and others would wait
    return {
        "lease": lease,
        "messages": await run_in_threadpool(lambda: [content_of(one, tag) for tag, one in messages]),
    }


@endpoint("POST", _LEASE + ":ack", Action.CONSUME)
def ack(request: Request, body: Tags) -> Acknowledged:
    """Acknowledge messages: they are done."""
    settled = _with_lease(request, lambda leases, *lease: leases.ack(*lease, body.once))
    return Acknowledged(acknowledged=settled.done, missing=settled.missing)


@endpoint("POST", _LEASE + ":release", Action.CONSUME)
def release(request: Request, body: Release) -> Released:
    """Put messages back into their queue: to be next, or after a delay."""
    settled = _with_lease(request, lambda leases, *lease: leases.release(*lease, body.once, body.delay))
    return Released(released=settled.done, missing=settled.missing)


@endpoint("POST", _LEASE + ":extend", Action.CONSUME)
def extend(request: Request, body: Extend) -> Extended:
    """Let a lease last for some time from now."""
    ends_ms, held = _with_lease(request, lambda leases, *lease: leases.extend(*lease, body.seconds))
    lease = Lease(id=request.path_params["lease"], ends=iso(ends_ms), seconds=body.seconds)
    return Extended(lease=lease, held=held)


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


def _leases_of(request: Request, queue: str, is_named: bool) -> HttpLeases:
    """Connects, and returns the leases of a queue; a Problem if there is none.

    A queue that a token names may be unknown yet.
    """
    serve = serve_of(request)
    try:
        serve.store.keys.check_queue(queue)
    except InvalidQueueName as error:
        raise bad_request(str(error)) from None
    if is_broadcast(serve.broker.app, queue):
        raise bad_request(f"{quoted(queue)} is a queue of broadcasts, which has no messages to take", "broadcast-queue")
    if not is_named and not serve.broker.has_queue(queue):
        raise Problem(
            404, f"nobody has published to a queue {quoted(queue)} yet, nor does the token name it", "no-such-queue"
        )
    return HttpLeases(serve.store)


def _with_lease(request: Request, act: Callable[[HttpLeases, str, str], T]) -> T:
    """Does something with the caller's lease."""
    try:
        return act(HttpLeases(serve_of(request).store), caller_of(request).name, str(request.path_params["lease"]))
    except LeaseGone:
        detail = "the lease has ended, or holds no message any more; what was not acknowledged goes back to its queue"
        raise Problem(410, detail, "lease-ended") from None
    except ValueError as error:
        raise bad_request(str(error), "bad-tag") from None


async def _disconnected(request: Request) -> None:
    """Returns when the caller has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _seconds(name: str, text: str, least: float, most: float) -> float:
    """Reads a duration, also one without a unit, which is in s."""
    try:
        seconds = parse(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError as error:
        raise bad_request(f"{name}: {error}") from None
    if not least <= seconds <= most:
        raise bad_request(f"{name}={text} is not from {least:g}s to {most:g}s")
    return seconds
