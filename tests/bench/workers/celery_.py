"""Celery on stock Redis or on ours."""

import os

from celery import Celery

from tests.bench.journal import arrive

app = Celery("bench", broker=os.environ["BENCH_SERVER"], set_as_current=False)
if os.environ.get("BENCH_TRANSPORT"):
    app.conf.broker_transport = os.environ["BENCH_TRANSPORT"]
app.conf.task_ignore_result = app.conf.task_acks_late = True


@app.task
def begin(payload: str) -> None:
    """Notes that it begins."""
    arrive(0.0)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count):
        begin.delay("x" * 100)
