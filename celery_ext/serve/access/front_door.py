"""What every request passes: limits of its body, its host and origin, headers of the answer, errors in words."""

import logging
import re
from collections.abc import Callable
from time import monotonic
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celery_ext.serve.access.gate import SAFE, Gate
from celery_ext.serve.access.tokens import PREFIX
from celery_ext.serve.problems import Problem

logger = logging.getLogger(__name__)


#: Most bytes of a body, and of one with many tasks.
BODY_BYTES = 1_000_000
BATCH_BYTES = 10_000_000
#: How the path of a request with many tasks ends.
BATCH_PATHS = (":batch",)


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


#: Turns an error into the answer to a request.
InWords = Callable[[Request, Exception], Response]
#: What looks like a token.
_TOKEN = re.compile(rf"{PREFIX}[\w-]{{16,}}")
#: Characters of a path that stay as they are.
_PATH_CHARACTERS = "/:@!$&'()*+,;=~-._"


class FrontDoor:
    """What every request passes before a route sees it.

    It answers in words when something behind it fails, and logs what was asked: never a query, a header or a body.

    Args:
        app: What is behind it.
        gate: Lets callers in.
        root_path: Path below which a proxy serves the page.
        in_words: Answers in place of what failed.
    """

    def __init__(self, app: ASGIApp, gate: Gate, root_path: str, in_words: InWords) -> None:
        self._app = app
        self._gate = gate
        self._prefix = root_path.rstrip("/")
        self._in_words = in_words

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
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
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._place(scope)
            limited = _limited(scope, receive)
            visit = self._gate.admit(Request(scope))
            scope["state"].update(gate=self._gate, visit=visit, caller=visit.caller)
            await self._app(scope, limited, send_noted)
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

    def _place(self, scope: Scope) -> None:
        """Says where the server is: below which prefix, and by which scheme browsers call it.

        Routes go by the path as it was sent, percent-encoded, so that a name in it may contain a slash.
        """
        request, proxies = Request(scope), self._gate.proxies
        raw = scope.get("raw_path")
        path = raw.decode("latin-1") if raw else quote(scope["path"], safe=_PATH_CHARACTERS)
        prefix = proxies.prefix_of(request)
        prefix = self._prefix if prefix is None else prefix
        if not path.startswith(f"{prefix}/"):  # the proxy stripped it
            path = prefix + path
        scheme = proxies.scheme_of(request) or scope.get("scheme", "http")
        mounted_at = quote(scope.get("root_path", ""), safe=_PATH_CHARACTERS)
        scope.update(path=path, root_path=prefix + mounted_at, scheme=scheme)


def _limited(scope: Scope, receive: Receive) -> Receive:
    """Refuses a body that is too large: as soon as its length is known, or while it comes.

    Nothing reads on then. What the client still sends is thrown away by the server, so that the client reads the
    answer and not only that the connection broke.

    Raises:
        HTTPException: 413.
    """
    limit, read = BATCH_BYTES if scope["path"].endswith(BATCH_PATHS) else BODY_BYTES, 0
    too_large = HTTPException(413, f"the body is larger than {limit:,} bytes")
    announced = Headers(scope=scope).get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:  # servers refuse what is no number
        raise too_large

    async def receive_up_to_limit() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit:
            raise too_large
        return message

    return receive_up_to_limit


def _shown(scope: Scope) -> str:
    """Returns the path for a log: as it was sent, so without line ends; a token that stands in it is left out."""
    raw: bytes | None = scope.get("raw_path")
    return _TOKEN.sub(f"{PREFIX}…", raw.decode("latin-1") if raw else quote(scope["path"]))
