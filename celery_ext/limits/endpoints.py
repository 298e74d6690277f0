"""``/v1/limits``: limits and keys are listed, set and reset."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from starlette.requests import Request

from celery_ext.limits import control, served
from celery_ext.limits.limit import Limit as KeyLimit
from celery_ext.limits.store import LimitStore
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.api.exchange import Answer, Count, CursorText, Endpoints, QueueName, Strict, invalid_field
from celery_ext.serve.problems import bad_request
from celery_ext.serve.service import serve_of
from kombu_delayq.options import RATES

Running = Annotated[int, Meta(ge=0, le=1_000_000)]
Rate = Annotated[float, Meta(ge=RATES[0], le=RATES[1])]
Burst = Annotated[float, Meta(ge=1, le=1_000_000)]
Weight = Annotated[float, Meta(ge=0.01, le=1_000)]
#: Largest cursor of a scan in Redis.
_LAST_CURSOR = 2**64 - 1


class LimitRequest(Strict):
    """What holds for each key, in place of what workers declare. What is null stays as they declare it.

    Attributes:
        running: How many tasks of a key run at once; 0 pauses it.
        rate: How many tasks of a key begin in a second.
        burst: With a rate: how many may begin at once after a pause; by default those of a second.
        weight: How many turns a key has for each one of others.
    """

    schema_extra: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": [one], "properties": {one: {"not": {"type": "null"}}}} for one in ("running", "rate", "weight")
        ]
    }

    running: Running | None = None
    rate: Rate | None = None
    burst: Burst | None = None
    weight: Weight | None = None


class LimitFields(Answer):
    """A limit, for each of its keys. What is null is not said.

    Attributes:
        running: How many tasks of a key run at once; 0 pauses it.
        rate: How many tasks of a key begin in a second.
        burst: How many may begin at once after a pause.
        weight: How many turns a key has for each one of others.
    """

    running: int | None
    rate: float | None
    burst: float | None
    weight: float | None


class LimitRow(Answer):
    """A limit, or a key for which people have set one.

    Attributes:
        name: Its name.
        declared: What the worker that started last declares; null for a key, or if it declares none.
        set: What people have set in its place; null if they have not.
        holds: What holds.
    """

    name: str
    declared: LimitFields | None
    set: LimitFields | None
    holds: LimitFields | None


class LimitList(Answer):
    """The limits of a broker.

    Attributes:
        limits: The limits, by name.
        queues: The queues in which workers have declared limits.
    """

    limits: list[LimitRow]
    queues: list[str]


class KeysQuery(Strict):
    """A page of keys.

    Attributes:
        queue: Of which queue.
        cursor: Goes on behind the answer before.
    """

    queue: QueueName
    cursor: CursorText | None = None


class Key(Answer):
    """A key of a queue.

    Attributes:
        key: Such as `account:7`; empty for the messages without a key.
        waiting: Number of its messages that are ready, and wait for their turn.
        running: Number of its messages in the hands of workers.
        rests_s: For how long it rests, in s; 0 if it does not.
        limit: What holds for it; null if nobody declares its limit.
        is_set: Whether people have set a limit for this key alone.
    """

    key: str
    waiting: Count
    running: Count
    rests_s: float
    limit: LimitFields | None
    is_set: bool


class KeyList(Answer):
    """Some hundred keys of a queue, in no order.

    Attributes:
        keys: The keys that have messages, or rest. One that comes or goes meanwhile may be missing, or come twice.
        cursor: Where the next page begins; null on the last.
    """

    keys: list[Key]
    cursor: str | None


class LimitDone(Answer):
    """What became of a limit or a key.

    Attributes:
        name: Its name.
        outcome: `unchanged` if it was so before.
    """

    name: str
    outcome: Literal["set", "paused", "reset", "unchanged"]


endpoint = Endpoints("Limits")
_ONE = "/v1/limits/{limit:name}"


@endpoint("GET", "/v1/limits", Action.READ)
def list_limits(request: Request) -> LimitList:
    """List the limits, with what people have set."""
    serve, caller = serve_of(request), caller_of(request)
    rows = [
        LimitRow(name=one.name, declared=_fields(one.declared), set=_fields(one.set), holds=_fields(one.holds))
        for one in served.list_limits(serve, caller)
    ]
    return LimitList(limits=rows, queues=caller.queues_of(sorted(serve.store.part(LimitStore).queues())))


@endpoint("GET", "/v1/limits/keys", Action.READ)
def list_keys(request: Request, query: KeysQuery) -> KeyList:
    """List the keys of a queue, with what waits and runs of each."""
    serve = serve_of(request)
    served.check_keys(serve, caller_of(request), query.queue)
    cursor = query.cursor or "0"
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= 20 and int(cursor) <= _LAST_CURSOR):
        raise bad_request("the cursor is damaged: begin again without it", "bad-cursor")
    part = serve.store.part(LimitStore)
    states, after = part.keys_page(query.queue, int(cursor))
    keys = [
        Key(**row.state._asdict(), limit=_fields(row.limit), is_set=row.is_set)
        for row in control.rows_of(part.limits(query.queue), query.queue, states)
    ]
    return KeyList(keys=keys, cursor=None if after is None else str(after))


@endpoint("PUT", _ONE, Action.PAUSE)
def set_limit(request: Request, body: LimitRequest) -> LimitDone:
    """Set a limit for all its keys, or for one key, in all queues, until it is deleted."""
    limit = KeyLimit(body.running, body.rate, None if body.rate is None else body.burst, body.weight)
    if limit == KeyLimit():
        raise invalid_field("$", "give running, rate or weight")
    return _changed(request, control.set_limit, limit)


@endpoint("DELETE", _ONE, Action.PAUSE)
def reset_limit(request: Request) -> LimitDone:
    """Let hold again what workers declare, for a limit or for a key."""
    return _changed(request, control.reset)


def _changed(request: Request, act: Any, *args: Any) -> LimitDone:
    name, outcome = served.change(serve_of(request), caller_of(request), act, request.path_params["limit"], *args)
    return LimitDone(name=name, outcome=outcome)


def _fields(limit: KeyLimit | None) -> LimitFields | None:
    return None if limit is None else LimitFields(**limit._asdict())
