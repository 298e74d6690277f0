"""A server that shows what comes due when, and that programs in any language can call.

It needs the extra ``serve``: ``pip install 'kombu-delayq[serve]'``.
"""

from collections.abc import Callable, Iterable
from typing import Any

from celery import Celery
from starlette.types import ASGIApp

from celery_ext.serve.application import make_app
from celery_ext.serve.metrics import DelayqCollector, connection_of
from celery_ext.serve.service import ServeBroker
from celery_ext.serve.settings import ServeSettings

__all__ = ["DelayqCollector", "ServeSettings", "asgi", "wsgi"]


def asgi(app: "Celery[Any]", **settings: Any) -> ASGIApp:
    """Returns an ASGI application for an app's broker, to mount into FastAPI, Starlette and the like.

    The app around it decides who may call: by ``identify``, by tokens, or by a header of a proxy. It also decides by
    which names it may be called.

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
    return make_app(ServeBroker(app, lambda: connection_of(app)), given)


def wsgi(app: "Celery[Any]", **settings: Any) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Returns the same for WSGI, to mount into Flask and the like."""
    from celery_ext.serve.wsgi_mount import AsWSGI

    return AsWSGI(asgi(app, **settings))
