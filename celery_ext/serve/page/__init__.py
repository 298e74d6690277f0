"""The page: what comes due when, queue by queue and task by task."""

from celery_ext.serve.access.identity import Action
from celery_ext.serve.page.views.errors import explain, is_wanted
from celery_ext.serve.page.views.overview import overview
from celery_ext.serve.page.views.queue import queue
from celery_ext.serve.page.views.static import static
from celery_ext.serve.routes import ActionRoute

__all__ = ["explain", "is_wanted", "routes"]


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    return [
        ActionRoute("/", overview, Action.READ),
        ActionRoute("/queues", queue, Action.READ, name="queue_by_name"),
        ActionRoute("/queues/{queue:name}", queue, Action.READ),
        ActionRoute("/static/{path:path}", static, None),
    ]
