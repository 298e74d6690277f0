"""Metrics for Prometheus, a figure for autoscalers, and the health of the server."""

from celery_ext.serve.access.identity import Action
from celery_ext.serve.metrics.endpoint import metrics
from celery_ext.serve.metrics.health import HealthAnswer, HealthQuery, healthz
from celery_ext.serve.metrics.scale import ScaleQuery, Work, scale
from celery_ext.serve.routes import ActionRoute, Doc


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    about = "Count the work of queues that is ready, or due soon, for an autoscaler."
    counted = Doc(about, ScaleQuery, None, {200: Work}, "Monitoring")
    shown = Doc("Answer with the metrics for Prometheus.", None, None, {200: None}, "Monitoring")
    health = Doc("Say whether Redis answers.", HealthQuery, None, {200: HealthAnswer, 503: HealthAnswer}, "Monitoring")
    return [
        ActionRoute("/metrics", metrics, Action.METRICS, doc=shown),
        ActionRoute("/scale", scale, Action.METRICS, doc=counted),
        ActionRoute("/healthz", healthz, None, doc=health),
    ]
