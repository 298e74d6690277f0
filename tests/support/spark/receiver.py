"""A Celery app whose task writes down its arguments."""

import os
from typing import Any

import redis
from celery import Celery

app = Celery("receiver", set_as_current=False)
app.conf.update(task_default_queue="plain", broker_connection_retry_on_startup=True)


@app.task(bind=True, name="receive")
def receive(self: Any, *args: Any, **kwargs: Any) -> None:
    """Writes down its arguments, as Python shows them, its queue and its priority."""
    journal = redis.Redis(port=int(os.environ["RECEIVER_PORT"]), db=15, decode_responses=True)
    info = self.request.delivery_info
    journal.rpush("journal", f"{self.name} {info['routing_key']} {info['priority']} {args!r} {kwargs!r}")
