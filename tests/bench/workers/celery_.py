"""Celery on stock Redis, or on ours with ``fast_publish``."""

import os
from collections.abc import Sequence

from celery import Celery

from celery_ext import install
from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD

app = Celery("bench", broker=os.environ["BENCH_SERVER"], set_as_current=False)
if os.environ.get("BENCH_TRANSPORT"):
    app.conf.broker_transport = os.environ["BENCH_TRANSPORT"]
    install(app, fast_publish=True)
app.conf.task_ignore_result = app.conf.task_acks_late = True


@app.task
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


def send(dues: Sequence[float]) -> None:
    """Enqueues tasks."""
    for due in dues:
        begin.delay(due, PAYLOAD)
