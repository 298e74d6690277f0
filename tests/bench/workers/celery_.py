"""Celery on stock Redis, or on ours with ``fast_publish``."""

import os

from celery import Celery

from celery_ext import install
from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD, paced

app = Celery("bench", broker=os.environ["BENCH_SERVER"], set_as_current=False)
if os.environ.get("BENCH_TRANSPORT"):
    app.conf.broker_transport = os.environ["BENCH_TRANSPORT"]
    install(app, fast_publish=True)
app.conf.task_ignore_result = app.conf.task_acks_late = True


@app.task
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count):
        begin.delay(0.0, PAYLOAD)


def trickle(count: int) -> None:
    """Enqueues tasks one by one, with pauses."""
    for due in paced(count):
        begin.delay(due, PAYLOAD)
