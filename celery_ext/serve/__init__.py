"""A server that shows what comes due when, and that programs in any language can call.

It needs the extra ``serve``: ``pip install 'kombu-delayq[serve]'``.
"""

from typing import Any

from celery import Celery
from starlette.types import ASGIApp

from celery_ext.connection import TRANSPORT
from celery_ext.serve.application import make_app
from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.settings import ServeSettings

__all__ = ["ServeSettings", "asgi"]


def asgi(app: Celery, **settings: Any) -> ASGIApp:
    """Returns an ASGI application for an app's broker, to run by itself or to mount into another one.

    Args:
        app: The Celery app.
        settings: Fields of ``ServeSettings``.
    """

    def connect() -> Any:
        return app.connection_for_read(transport=TRANSPORT)

    return make_app(ServeBroker(app, connect), ServeSettings(**settings))
