"""The HTTP API, ``/v1``."""

from celery_ext.features import modules_of
from celery_ext.serve.api import bulk, deliveries, enqueue, openapi, periodic, queues, tasks
from celery_ext.serve.routes import ActionRoute


def routes() -> list[ActionRoute]:
    """Returns the routes of the API: its own, and those of features, in their modules ``endpoints``."""
    parts = (enqueue, tasks, queues, *modules_of("endpoints"), bulk, periodic, deliveries, openapi)
    return [route for part in parts for route in part.endpoint.routes]
