"""What every request passes: limits of its body, its host and origin, headers of the answer, errors in words."""

import logging
import re
from collections.abc import Callable
from time import monotonic
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celery_ext.serve.access.gate import SAFE, Gate
from celery_ext.serve.access.tokens import PREFIX
from celery_ext.serve.problems import Problem
from celery_ext.serve.settings import ServeSettings

logger = logging.getLogger(__name__)


#: Most bytes of a body, and of one with many tasks.
BODY_BYTES = 1_000_000
BATCH_BYTES = 10_000_000
#: How the path of a request with many tasks ends.
BATCH_PATHS = (":batch",)


class BodyLimit:
    """Refuses bodies that are too large: as soon as their length is known, or while they come.

    Nothing reads on then. What the client still sends is thrown away by the server, so that the client reads the
    answer and not only that the connection broke.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request.

        Raises:
            HTTPException: 413.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = BATCH_BYTES if scope["path"].endswith(BATCH_PATHS) else BODY_BYTES
        if _announced(scope) > limit:
            raise _too_large(limit)
        read = 0

        async def receive_up_to_limit() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, receive_up_to_limit, send)


def _announced(scope: Scope) -> int:
    """Returns the announced length of the body in bytes; 0 if it comes in chunks. Servers refuse what is no number."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body is larger than {limit:,} bytes")


#: The page loads its own files, sends its own forms, and nothing else: no inline script or style, no other host.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # A search in the address may have an argument of a task. With `no-referrer` the header Origin would be empty, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Arguments of tasks are not left in caches. What never changes, such as a style sheet, says otherwise itself.
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """Adds the headers that an answer does not have yet."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


#: Turns an error into the answer to a request.
InWords = Callable[[Request, Exception], Response]
#: What looks like a token.
_TOKEN = re.compile(rf"{PREFIX}[\w-]{{16,}}")
#: Characters of a path that stay as they are.
_PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"


def middleware(settings: ServeSettings, in_words: InWords) -> list[Middleware]:
    """Returns the middleware of a server, the outermost first.

    Args:
        settings: Those of the server.
        in_words: Answers in place of what failed.

    Raises:
        InvalidTokens: The file of tokens cannot be read.
        ValueError: A trusted proxy is no address.
    """
    gate = Gate(settings)
    return [
        Middleware(SecurityHeaders),
        Middleware(_Errors, in_words),
        Middleware(_Paths, settings, gate),
        Middleware(BodyLimit),
        Middleware(_Admission, gate),
    ]


class _Errors:
    """Answers in words when something below fails, and logs what was asked: never a query, a header or a body."""

    def __init__(self, app: ASGIApp, in_words: InWords) -> None:
        self._app = app
        self._in_words = in_words

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Its own, also below a mount: what is found out about the request here is for the routes here.
        scope = {**scope, "state": dict(scope.get("state", {}))}
        begun, status = monotonic(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:
            if status:
                raise  # half of an answer is out: the server ends the connection
            await self._answer(Request(scope), error)(scope, receive, send_noted)
        finally:
            visit = scope["state"].get("visit")
            level = logging.DEBUG if status < 400 and scope["method"] in SAFE else logging.INFO
            took_ms = (monotonic() - begun) * 1000
            who = visit.caller.name if visit and visit.caller.name else "nobody"
            logger.log(level, "%s %s %s by %s in %.1f ms", status, scope["method"], _shown(scope), who, took_ms)

    def _answer(self, request: Request, error: Exception) -> Response:
        try:
            return self._in_words(request, error)
        except Exception:
            logger.exception("an error of a request cannot be put in words")
            return Problem(500, "the server failed; see its log", "internal-error").response()


class _Paths:
    """Says where the server is: below which prefix, and by which scheme browsers call it.

    Routes go by the path as it was sent, percent-encoded, so that a name in it may contain a slash.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, gate: Gate) -> None:
        self._app = app
        self._prefix = settings.root_path.rstrip("/")
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request, proxies = Request(scope), self._gate.proxies
            raw = scope.get("raw_path")
            path = raw.decode("latin-1") if raw else quote(scope["path"], safe=_PATH_CHARACTERS)
            prefix = proxies.prefix_of(request)
            prefix = self._prefix if prefix is None else prefix
            if not path.startswith(f"{prefix}/"):  # the proxy stripped it
                path = prefix + path
            scheme = proxies.scheme_of(request) or scope.get("scheme", "http")
            root_path = prefix + scope.get("root_path", "")
            scope.update(path=path, root_path=root_path, scheme=scheme)
        await self._app(scope, receive, send)


class _Admission:
    """Lets in whom the gate admits."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            visit = self._gate.admit(Request(scope))
            scope["state"].update(gate=self._gate, visit=visit, caller=visit.caller)
        await self._app(scope, receive, send)


def _shown(scope: Scope) -> str:
    """Returns the path for a log: as it was sent, so without line ends; a token that stands in it is left out."""
    raw: bytes | None = scope.get("raw_path")
    return _TOKEN.sub(f"{PREFIX}…", raw.decode("latin-1") if raw else quote(scope["path"]))
