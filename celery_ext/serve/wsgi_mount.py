"""The application for frameworks that speak WSGI: Flask, Django, and all others."""

import os
from collections.abc import Callable, Iterable
from io import BytesIO
from threading import Lock
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from a2wsgi import ASGIMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from celery_ext.serve.access.front_door import BATCH_BYTES
from celery_ext.serve.problems import Problem

#: What a WSGI server calls.
WSGIApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
#: Where WSGI servers put the path as it was sent: gunicorn and Werkzeug, uWSGI and Apache.
_RAW = ("RAW_URI", "REQUEST_URI")


class AsWSGI:
    """Runs an ASGI application in a thread of each process that gets requests.

    Args:
        application: Answers the requests.
    """

    def __init__(self, application: ASGIApp) -> None:
        self._application = application
        self._lock = Lock()
        self._pid = 0
        self._inner: WSGIApp | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answers a request."""
        if not _is_readable(environ):
            start_response("400 Bad Request", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return []
        if not environ.get("CONTENT_LENGTH"):
            if environ.get("wsgi.input_terminated"):  # the adapter reads as many bytes as the header says
                body = environ["wsgi.input"].read(BATCH_BYTES + 1)
                environ = {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
            elif "HTTP_TRANSFER_ENCODING" in environ:
                refused = Problem(411, "this server takes no chunked body: send the header Content-Length").response()
                start_response("411 Length Required", list(refused.headers.items()))
                return [bytes(refused.body)]
        return self._of_process()(environ, start_response)

    def _of_process(self) -> WSGIApp:
        """Returns the part with the thread. A server may load the app first and fork then, which ends the thread."""
        with self._lock:
            if self._inner is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._inner = ASGIMiddleware(_with_raw_path(self._application))  # type: ignore[arg-type,assignment]
            return self._inner  # type: ignore[return-value]


def _with_raw_path(app: ASGIApp) -> ASGIApp:
    """Gives ASGI the path as it was sent, where the WSGI server has it: in the other path %2F is a slash already."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        environ = scope["wsgi_environ"]
        if "client" not in scope and environ.get("REMOTE_ADDR"):
            scope["client"] = (environ["REMOTE_ADDR"], 0)
        for name in _RAW:
            raw = urlsplit(environ.get(name, "")).path.encode("latin-1", errors="replace")
            if raw and unquote_to_bytes(raw) == scope["path"].encode():
                scope["raw_path"] = raw
                break
        await app(scope, receive, send)

    return call


def _is_readable(environ: dict[str, Any]) -> bool:
    """Whether the path is UTF-8 and the query ASCII, as the adapter expects."""
    try:
        for name in ("SCRIPT_NAME", "PATH_INFO"):
            environ.get(name, "").encode("latin-1").decode()
        return str(environ.get("QUERY_STRING", "")).isascii()
    except UnicodeError:
        return False
