"""How long messages wait in their queue, as workers count it, whichever way they came."""

from time import time

import pytest

from celery_ext import Call, install, run_now, send_many
from celery_ext.serve import DelayqCollector
from tests.support.serve.metrics import scraped
from tests.support.workers.harness import Proj

NAME = "queue_wait_seconds"


@pytest.mark.journey
def test_workers_count_how_long_messages_waited_however_they_were_published(proj: Proj) -> None:
    """Each way to publish says since when a message is ready; the metrics have the oldest, and then all that ran."""
    collector = DelayqCollector(proj.server.url, queues=["celery"])
    before_s = int(time())
    proj.send("add", 1, 1)
    send_many(proj.app, "proj.add", [Call((1, 1)), Call((1, 1), countdown=-5)])
    proj.send("add", 1, 1, countdown=3600, task_id="sooner")
    run_now(proj.app, "sooner")
    install(proj.app, fast_publish=True)
    for _ in range(3):
        proj.send("add", 1, 1)
    proj.send("add", 1, 1, timestamp=before_s - 1000)
    found = scraped(collector)
    assert found["ready_messages", "celery"] == 8
    assert 0 <= found["oldest_ready_seconds", "celery"] <= time() - before_s
    worker = proj.worker(pool="solo")
    proj.await_runs(8)
    proj.send("reject_once", True, timestamp=before_s - 1000)  # the second time it waits anew
    proj.await_runs(10)
    worker.stop()
    found = scraped(collector)
    assert found["oldest_ready_seconds", "celery"] == 0
    assert (found[f"{NAME}_count", "celery"], found["queue_wait_unknown_messages_total", "celery"]) == (10, 0)
    assert found[f"{NAME}_bucket", "600.0", "celery"] == 8
    assert 2000 <= found[f"{NAME}_sum", "celery"] <= 2000 + 10 * (time() - before_s + 1)
