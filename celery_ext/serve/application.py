"""The application: all routes behind their middleware, and every error in words."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from celery_ext.serve import api, metrics, page
from celery_ext.serve.access.front_door import FrontDoor
from celery_ext.serve.access.gate import Gate
from celery_ext.serve.problems import Problem, unavailable
from celery_ext.serve.routes import ActionRoute
from celery_ext.serve.service import Serve, ServeBroker, serve_of
from celery_ext.serve.settings import ServeSettings
from kombu_delayq.errors import AnswerLost, DelayqError, StoreUnavailable
from kombu_delayq.redis import is_denied

logger = logging.getLogger(__name__)


def asgi(app: "Celery[Any]", **settings: Any) -> Starlette:
    """Returns an ASGI application for an app's broker, to mount into FastAPI, Starlette and the like.

    The app around it decides who may call: by ``identify``, by tokens, or by a header of a proxy. It also decides by
    which names it may be called, and gives its ``lifespan`` to ``router.lifespan_context`` of the one returned: so bulk
    actions under way end tidily where the server ends by a signal, as uvicorn does.

    Args:
        app: The Celery app.
        settings: Fields of ``ServeSettings``.

    Raises:
        ValueError: The settings do not say who may call.
    """
    given = ServeSettings(**{"allowed_hosts": ("*",), **settings})
    if not given.knows_callers and given.anonymous is None:
        raise ValueError(
            "who may call? Give identify, tokens, or trust_header with trusted_proxies; "
            "or anonymous=True, to let everybody look who can reach the app"
        )
    return make_app(ServeBroker(app, lambda: metrics.connection_of(app)), given)


def make_app(broker: ServeBroker, settings: ServeSettings) -> Starlette:
    """Makes the ASGI application of a server.

    Raises:
        InvalidTokens: The file of tokens cannot be read.
        ValueError: A trusted proxy is no address.
    """
    kinds = (Problem, HTTPException, RedisError, OSError, OperationalError, DelayqError)
    handlers = dict.fromkeys(kinds, _in_words)
    front = Middleware(FrontDoor, Gate(settings), settings.root_path, _in_words)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        broker.close()

    app = Starlette(routes=routes(), middleware=[front], exception_handlers=handlers, lifespan=lifespan)
    app.state.serve = Serve(broker, settings)
    return app


def routes() -> list[ActionRoute]:
    """Returns all routes."""
    return [*metrics.routes(), *api.routes(), *page.routes()]


def _in_words(request: Request, error: Exception) -> Response:
    is_of_redis = isinstance(error, (RedisConnectionError, RedisTimeoutError, OSError))
    if is_of_redis and not isinstance(error, StoreUnavailable):
        serve_of(request).broker.lost()
    problem = problem_of(error)
    if problem.status == 405:
        problem.headers["Allow"] = ", ".join(_methods(request))
    return page.explain(request, problem) if page.is_wanted(request) else problem.response()


def _methods(request: Request) -> list[str]:
    """Returns the methods that a path has: several routes may share it."""
    found = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in found for method in route.methods or ()})


def problem_of(error: Exception) -> Problem:
    """Returns what the caller reads of an error."""
    match error:
        case Problem():
            return error
        case StoreUnavailable():  # some are also errors of a connection
            logger.warning("a request failed because the %s did: %s", error.feature, error.in_words)
            detail = f"the database of the {error.feature} does not answer; see the server's log"
            return unavailable(detail, f"{error.feature}-unavailable")
        case HTTPException():
            return Problem(error.status_code, error.detail, headers=error.headers)
        case ClientDisconnect():  # nobody reads this
            return Problem(400, "the body ended too soon")
        case AnswerLost():
            return unavailable(str(error), "answer-lost", outcome="unknown")
        case RedisError() if is_denied(error):
            logger.warning("a request failed because Redis denied it: %s", error)
            return Problem(502, "the server's Redis user may not do this", "broker-refuses")
        case OperationalError() | RedisError() | OSError():
            logger.warning("a request failed because Redis did: %s", error)
            return unavailable("Redis does not answer, or refuses the command; see the server's log")
        case DelayqError():
            return Problem(422, str(error), "not-possible")
    logger.error("a request failed in the server", exc_info=error)
    return Problem(500, "the server failed; see its log", "internal-error")
