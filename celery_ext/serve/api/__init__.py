"""The HTTP API, ``/v1``."""

from celery_ext.serve.api import deliveries, queues
from celery_ext.serve.routes import ActionRoute


def routes() -> list[ActionRoute]:
    """Returns the routes of the API."""
    return [*queues.routes(), *deliveries.routes()]
