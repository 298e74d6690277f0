"""The middleware in front of all routes."""

from typing import Any

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from celery_ext.serve.access.identity import LOCAL, READING, Caller
from celery_ext.serve.settings import ServeSettings


def middleware(settings: ServeSettings) -> list[Middleware]:
    """Returns the middleware of a server, the outermost first."""
    return [Middleware(_RawPath), Middleware(_Identify, settings)]


class _RawPath:
    """Routes by the path as it was sent, percent-encoded, so that a name in it may contain a slash."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if scope["type"] == "http" and raw:
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)


class _Identify:
    """Finds out who calls."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["caller"] = self._caller(Request(scope))
        await self._app(scope, receive, send)

    def _caller(self, request: Request) -> Caller:
        identify: Any = self._settings.identify
        caller: Caller = (identify(request) if identify else None) or LOCAL
        if self._settings.allow_write:
            return caller
        return Caller(caller.name, caller.actions & READING, caller.queues, caller.tasks)
