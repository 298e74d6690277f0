"""Metrics for Prometheus, a figure for autoscalers, and the health of the server."""

from celery_ext.serve.routes import ActionRoute


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    return []
