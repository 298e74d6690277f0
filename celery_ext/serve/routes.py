"""Routes that say what they do: the action that a caller needs, and what the OpenAPI document says of them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from starlette.convertors import CONVERTOR_TYPES, Convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from celery_ext.serve.access.identity import Action, caller_of

#: A plain function runs in a thread; a coroutine function must not block.
Handler = Callable[[Request], Response | Awaitable[Response]]


class _Name(Convertor[str]):
    """A name in a path, such as ``{queue:name}``: any text, percent-encoded, also with ``%2F`` in it."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        return quote(value, safe="", errors="surrogateescape")


CONVERTOR_TYPES["name"] = _Name()


@dataclass(frozen=True)
class Doc:
    """What the OpenAPI document says of a route.

    Attributes:
        summary: A short sentence.
        query: A msgspec Struct, a field for each query parameter; None without parameters.
        body: Type of the JSON body; None without a body.
        answers: Type of the answer by HTTP status; None for an answer without JSON.
        tag: Under which heading the route stands.
        idempotent: Whether the route takes the header ``Idempotency-Key``.
    """

    summary: str
    query: type | None = None
    body: Any = None
    answers: Mapping[int, Any] = field(default_factory=dict)
    tag: str = ""
    idempotent: bool = False


class ActionRoute(Route):
    """A route that lets in only callers that may do its action.

    Args:
        path: Path below the mount; names in it are ``{queue:name}``.
        handler: Answers the request.
        action: What the caller must be allowed to do; None where everybody may, such as for a style sheet.
        method: HTTP method.
        doc: Of the HTTP API; None for a part of the page.
        name: For ``url_for``; by default the handler's name.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        action: Action | None,
        *,
        method: str = "GET",
        doc: Doc | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(path, handler, methods=[method], name=name or handler.__name__)
        self.action = action
        self.doc = doc
        self.method = method

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request of a caller that may do the action. Raises a problem for any other."""
        if self.action is not None and scope["method"] in (self.methods or ()):
            caller_of(Request(scope)).check(self.action)
        await super().handle(scope, receive, send)


def change_route(path: str, handler: Handler, action: Action) -> ActionRoute:
    """Returns the route of a form of the page."""
    return ActionRoute(path, handler, action, method="POST", name=path)
