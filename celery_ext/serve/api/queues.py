"""Queues: what they hold."""

from starlette.requests import Request
from starlette.responses import JSONResponse

from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import serve_of


def routes() -> list[ActionRoute]:
    """Returns the routes of queues."""
    return [ActionRoute("/v1/queues", list_queues, Action.READ, doc=Doc("List the queues and what they hold."))]


def list_queues(request: Request) -> JSONResponse:
    """Answers with the figures of each queue that the caller may see."""
    store = serve_of(request).store
    names = caller_of(request).queues_of(store.queues.names())
    rows = [store.queues.stats(name) for name in names]
    return JSONResponse({"queues": [{"queue": row.queue, "delayed": row.delayed, "ready": row.ready} for row in rows]})
