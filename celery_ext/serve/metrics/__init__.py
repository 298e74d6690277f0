"""Metrics for Prometheus, a figure for autoscalers, and the health of the server."""

from celery_ext.serve.access.identity import Action
from celery_ext.serve.metrics.endpoint import metrics
from celery_ext.serve.metrics.health import healthz
from celery_ext.serve.metrics.scale import ScaleQuery, Work, scale
from celery_ext.serve.routes import ActionRoute, Doc


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    counted = Doc(
        "Count the work of queues that is ready, or due soon, for an autoscaler.", ScaleQuery, None, {200: Work}
    )
    return [
        ActionRoute("/metrics", metrics, Action.METRICS),
        ActionRoute("/scale", scale, Action.METRICS, doc=counted),
        ActionRoute("/healthz", healthz, None),
    ]
