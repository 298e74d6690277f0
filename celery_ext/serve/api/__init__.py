"""The HTTP API, ``/v1``."""

from celery_ext.serve.api import bulk, dead_letters, deliveries, enqueue, openapi, periodic, queues, tasks
from celery_ext.serve.routes import ActionRoute

_PARTS = (enqueue, tasks, queues, dead_letters, bulk, periodic, deliveries, openapi)


def routes() -> list[ActionRoute]:
    """Returns the routes of the API."""
    return [route for part in _PARTS for route in part.endpoint.routes]
