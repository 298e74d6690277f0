"""The metrics and the health of a broker, from a thread of a process that does something else."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import Any

from starlette.applications import Starlette

from celery_ext.serve.access.identity import LOCAL, Action
from celery_ext.serve.metrics import DelayqCollector, healthz, metrics
from celery_ext.serve.routes import ActionRoute
from celery_ext.serve.server import Server, listen, url_of
from celery_ext.serve.service import Serve
from celery_ext.serve.settings import ServeSettings


@contextmanager
def exporting(collector: DelayqCollector, host: str, port: int) -> Iterator[str]:
    """Answers ``/metrics`` and ``/healthz``, and yields the URL. Nothing is logged of the requests.

    Args:
        collector: Reads the metrics, over a connection of its own.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.

    Raises:
        CannotServe: The address cannot be used, or the port is in use.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    routes = [ActionRoute("/metrics", metrics, Action.METRICS), ActionRoute("/healthz", healthz, None)]
    app = Starlette(routes=routes, lifespan=_as_anybody)
    app.state.serve, app.state.metrics_collector = Serve(collector.broker, ServeSettings()), collector
    listening = listen(host, port)
    server = Server(app)
    thread = Thread(target=server.serve_on, args=(listening,), name="delayq-metrics", daemon=True)
    url = url_of(listening)
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join()


@asynccontextmanager
async def _as_anybody(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Gives each request its caller."""
    yield {"caller": LOCAL}
