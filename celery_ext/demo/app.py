"""The app of the demo: an ordinary Celery app, and the one setting."""

import os
import time
from datetime import datetime
from typing import Any

import redis
from celery import Celery

from celery_ext.demo.journal import Journal

app = Celery("demo", broker=os.environ.get("DELAYQ_DEMO_BROKER"))
app.conf.broker_transport = "kombu_delayq.transport:Transport"
app.conf.task_ignore_result = True


@app.task(bind=True, acks_late=True)
def remind(self: Any, number: int) -> None:
    """Notes when it runs."""
    at = time.time()
    due = datetime.fromisoformat(self.request.eta).timestamp()
    Journal(redis.Redis.from_url(os.environ["DELAYQ_DEMO_JOURNAL"])).write(
        number, self.request.hostname.partition("@")[0], (at - due) * 1000
    )
