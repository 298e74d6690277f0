"""Reads requests into types, and writes answers as JSON."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, wraps
from inspect import getdoc, iscoroutinefunction
from math import isfinite
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import Action
from celery_ext.serve.api.idempotency import Attempt, once
from celery_ext.serve.problems import Problem, bad_request
from celery_ext.serve.routes import ActionRoute, Doc
from kombu_delayq.message import moment_of

#: Longest time in s that a request may name; about 190 years. ``max_delay`` of the transport may allow less.
MAX_SECONDS = 6_000_000_000
#: Most tasks in a batch.
MAX_BATCH = 1_000
#: Longest names of tasks and queues, and longest task ids, in characters.
MAX_NAME, MAX_ID = 1_000, 500
#: Names of headers of a message: those of W3C's trace context, and names with a hyphen. Celery's own have none, so a
#: request cannot change what Celery or kombu-delayq read.
HEADER_NAME = r"^(traceparent|tracestate|baggage|[A-Za-z0-9_]+(-[A-Za-z0-9_]+)+)$"
#: Python takes U+001C to U+001F for white space, and JSON Schema U+FEFF: with all of them named, both agree.
_NOT_BLANK = r"[^\s\x1c-\x1f\x85\ufeff]"
#: What a text has to be that one of these patterns is for.
PATTERNS_IN_WORDS = {
    HEADER_NAME: "a header of a message is traceparent, tracestate or baggage, or has a hyphen in its name",
    _NOT_BLANK: "Expected a text that is not blank",
}
#: Delay chains as the document shows them; ``DelayChain.parse`` reads more.
_CHAIN = r"^[1-9][0-9]{0,2}(s|m|h)(\*[1-9])?(,[1-9][0-9]{0,2}(s|m|h)(\*[1-9])?){0,9}$"

TaskName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, examples=["shop.remind"])]
QueueName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, examples=["orders"])]
TaskId = Annotated[str, Meta(min_length=1, max_length=MAX_ID, examples=["5f0e5c7e-2f4b-4d8e-9d5c-0a1b2c3d4e5f"])]
#: A time in a request. It names its zone, so that nobody has to guess it.
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, with a zone", examples=["2030-01-01T09:00:00+01:00"])]
Countdown = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="s from now")]
Lifetime = Annotated[float, Meta(gt=0, le=MAX_SECONDS, description="s from now")]
Priority = Annotated[int, Meta(ge=0, le=9)]
Limit = Annotated[int, Meta(ge=1, le=1_000, description="Most rows of an answer")]
CursorText = Annotated[str, Meta(max_length=6_000, description="The `cursor` of the answer before")]
Headers = dict[Annotated[str, Meta(pattern=HEADER_NAME, max_length=100)], Annotated[str, Meta(max_length=8_192)]]
ChainText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=10_000,
        description="How long each retry waits",
        examples=["4m,10m*2,1h"],
        extra_json_schema={"pattern": _CHAIN},
    ),
]
LimitKey = Annotated[
    str,
    Meta(
        max_length=MAX_ID,
        description="The name of a limit, and after a colon the values of its key",
        examples=["account:7"],
        extra_json_schema={"pattern": r"^([A-Za-z0-9_.-]{1,50}(:[\s\S]*)?)?$"},
    ),
]

#: A text to search for.
Sought = Annotated[str, Meta(min_length=1, max_length=500, pattern=_NOT_BLANK)]

#: A time in an answer.
Iso = Annotated[
    str,
    Meta(description="UTC, with ms", extra_json_schema={"format": "date-time"}, examples=["2030-01-01T08:00:00.000Z"]),
]
Count = Annotated[int, Meta(ge=0)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request. A field that nobody knows is an error: a slip must not pass in silence."""


class Answer(msgspec.Struct, kw_only=True):
    """An answer."""


class ProblemDetails(Answer):
    """Why a request failed, RFC 9457. Some kinds have further members.

    Attributes:
        type: Kind of the problem, stable.
        title: The kind in words.
        status: HTTP status.
        detail: What is wrong with this request.
        errors: With an invalid request: what is wrong, and where.
    """

    type: str
    title: str
    status: int
    detail: str
    errors: "list[FieldError] | UnsetType" = UNSET


class FieldError(Answer):
    """What is wrong with a part of a request.

    Attributes:
        path: Where, such as ``$.tasks[3].eta``.
        message: What.
    """

    path: str
    message: str


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

#: Where an error of msgspec says in which part of a request it is.
_PATH = re.compile(r"^(?P<what>.*) - at (?P<where>.*)$", re.DOTALL)
#: How msgspec says that a text does not match a pattern.
_OF_PATTERN = re.compile(r"matching regex '(?P<pattern>.*)'$", re.DOTALL)
_JSON = re.compile(r"application/(json|[\w.-]+\+json)\s*(;.*)?", re.IGNORECASE)
#: A time in a query begins with a year: msgspec would take a number for seconds since the epoch.
_YEAR = re.compile(r"\d{4}-")
#: The space before a zone is a plus sign that nobody encoded. One before the hours is as RFC 3339 allows it.
_UNENCODED_PLUS = re.compile(r" (?=\d\d:\d\d$)")


def body_of(request: Request, raw: bytes, kind: type[T]) -> T:
    """Reads the JSON body of a request.

    Raises:
        Problem: 415 for another content type, 400 for what is no JSON, 422 for JSON that is not of the type.
    """
    if not _JSON.fullmatch(request.headers.get("content-type", "")):
        raise Problem(415, "send the body as JSON, with the header Content-Type: application/json", "not-json")
    try:
        found: T = _decoder(cast(Any, kind)).decode(raw)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {error or type(error).__name__}", "bad-json") from None
    return found


def item_of(raw: Any, kind: type[T]) -> T:
    """Reads a part of a body that was read already. Raises a Problem, 422, whose paths begin at the part."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def query_of(request: Request, kind: type[T]) -> T:
    """Reads the parameters of a query. Raises a Problem, 422, for others and for odd values."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            raise invalid_field(f"$.{name}", "it is given more than once")
        given[name] = value
    for name in ("from", "to"):
        if name in given:
            if not _YEAR.match(given[name]):
                raise invalid_field(f"$.{name}", "it is no time such as 2030-01-01T09:00:00Z")
            given[name] = _UNENCODED_PLUS.sub("+", given[name])
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(error) from None


def invalid(error: msgspec.ValidationError) -> Problem:
    """Returns the problem of a request that is not of its type."""
    found = _PATH.match(str(error))
    what, where = (found["what"], found["where"].replace("`", "")) if found else (str(error), "$")
    if pattern := _OF_PATTERN.search(what):
        what = PATTERNS_IN_WORDS.get(pattern["pattern"].replace(r"\\", "\\"), "it has not the form that it has to have")
    return invalid_field(where, what.replace("`", ""))


def invalid_field(path: str, message: str, kind: str = "invalid-request") -> Problem:
    """Returns the problem of a request with a wrong field."""
    return Problem(422, f"{path}: {message}", kind, errors=[{"path": path, "message": message}])


class Endpoints:
    """The routes of a part of the API, in the order in which they are written. Where paths match alike, the first wins.

    Args:
        tag: Under which heading they stand in the OpenAPI document.
    """

    def __init__(self, tag: str) -> None:
        self.routes: list[ActionRoute] = []
        self._tag = tag

    def __call__(
        self,
        method: str,
        path: str,
        action: Action | None,
        *,
        answers: Any = None,
        status: int = 200,
        idempotent: bool = False,
    ) -> Callable[[F], F]:
        """Makes a route of a function that takes the request, and what its parameters ``query`` and ``body`` declare.

        The first line of its docstring is the summary in the document. A plain function runs in a thread. A parameter
        ``attempt`` gets the try of a request that is done once.

        Args:
            method: HTTP method.
            path: As of ``ActionRoute``.
            action: As of ``ActionRoute``.
            answers: Type of the answer; by default the function's return type, for one that makes no ``Response``.
            status: HTTP status of the answer.
            idempotent: Whether the route takes the header ``Idempotency-Key``: then a request with a key is done once.
        """

        def decorate(handler: F) -> F:
            hints, is_async = get_type_hints(handler), iscoroutinefunction(handler)
            query, body = hints.get("query"), hints.get("body")

            @wraps(handler)
            async def handle(request: Request) -> Response:
                given: dict[str, Any] = {}
                if query is not None:
                    given["query"] = query_of(request, query)
                if body is not None:
                    given["body"] = body_of(request, await request.body(), body)

                async def work(attempt: Attempt) -> Response:
                    if "attempt" in hints:
                        given["attempt"] = attempt
                    if is_async:
                        return answer(await handler(request, **given), status)
                    return await run_in_threadpool(lambda: answer(handler(request, **given), status))

                return await (once(request, work) if idempotent else work(Attempt()))

            summary = (getdoc(handler) or "").partition("\n")[0]
            shown = {status: hints["return"] if answers is None else answers}
            doc = Doc(summary, query, body, shown, self._tag, idempotent)
            self.routes.append(ActionRoute(path, handle, action, method=method, doc=doc))
            return handler

        return decorate


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns an answer with JSON; a value that is an answer already as it is."""
    if isinstance(value, Response):
        return value
    return Response(as_json(value), status, dict(headers or {}), "application/json")


def as_json(value: Any) -> bytes:
    """Writes JSON of anything that a message may contain: what JSON has no form for becomes its repr."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except (UnicodeEncodeError, TypeError, ValueError):  # such as a lone surrogate, or a tuple as a key
        return json.dumps(_plain(value)).encode()


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else None
        case msgspec.Struct():
            return _plain({name: one for name, one in asdict(value).items() if one is not msgspec.UNSET})
        case dict():
            return {key if isinstance(key, str) else repr(key): _plain(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return list(map(_plain, value))
    return repr(value)


def iso(due_ms: float) -> str:
    """Returns a time, ms since the epoch, in ISO 8601, UTC, with ms and ``Z``; rounded down."""
    return iso_of(moment_of(due_ms))


def iso_of(moment: datetime) -> str:
    """Returns a moment in ISO 8601, UTC, with ms and ``Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
