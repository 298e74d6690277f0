"""An ordinary Celery app with tasks that look whether they are to stop."""

import os
from time import perf_counter

from celery import Celery

from celery_ext import cancelled
from tests.bench.targets.app import BROKER, OURS

app = Celery("running", broker=os.environ.get(BROKER), backend=os.environ.get(BROKER), set_as_current=False)
app.conf.broker_transport = OURS


@app.task
def look(count: int) -> tuple[float, float]:
    """Looks so often. Returns what the first look took, and each of the others, in µs."""
    begun = perf_counter()
    cancelled()
    first = perf_counter()
    for _ in range(count):
        cancelled()
    return (first - begun) * 1e6, (perf_counter() - first) / count * 1e6
