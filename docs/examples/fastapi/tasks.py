"""The Celery app, and its task."""

import os

from celery import Celery

import celery_ext
from celery_ext.typing import Task, TaskOptions

REDIS = os.environ.get("SHOP_REDIS", "redis://localhost:6379")

app = Celery("shop", task_cls=Task, broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.update(
    broker_transport="kombu_delayq.transport:Transport",
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 3},
    broker_connection_retry_on_startup=True,
    task_publish_retry_policy={"max_retries": 2, "interval_start": 0.1},
)
celery_ext.install(app)


@app.task(**TaskOptions(delay_chain="10s,1m,10m", dead_letter_queue="unreminded"), autoretry_for=(OSError,))
def remind(customer: str) -> str:
    """Reminds a customer."""
    return f"reminded {customer}"
