"""A server that shows what comes due when, and that programs in any language can call.

It needs the extra ``serve``: ``pip install 'kombu-delayq[serve]'``.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery import Celery

    from celery_ext.serve.application import asgi
    from celery_ext.serve.metrics import DelayqCollector
    from celery_ext.serve.settings import ServeSettings

__all__ = ["DelayqCollector", "ServeSettings", "asgi", "wsgi"]

#: Modules of these names, which are imported at first use: tokens need none of the extra, and metrics no templates.
_MODULES = {"asgi": "application", "DelayqCollector": "metrics", "ServeSettings": "settings"}


__getattr__ = later(__name__, _MODULES)


def wsgi(app: "Celery[Any]", **settings: Any) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Returns the application of ``asgi`` for WSGI, to mount into Flask and the like."""
    from celery_ext.serve.application import asgi
    from celery_ext.serve.wsgi_mount import AsWSGI

    return AsWSGI(asgi(app, **settings))
