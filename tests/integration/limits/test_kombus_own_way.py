"""A worker that consumes in kombu's own way, and so passes by limits."""

from typing import Any

import pytest
from celery.contrib.testing.app import TestApp
from celery.contrib.testing.worker import start_worker

from celery_ext import Backoff
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_a_task_that_backs_off_runs_again(own_server: PrivateRedis, late: bool) -> None:
    """It is sent again, with its key and without a further retry, and is not lost."""
    config = {
        "broker_url": own_server.url,
        "broker_transport": "kombu_delayq.transport:Transport",
        "broker_transport_options": {"consume": "brpop", "limits": {"busy": {"running": 1}}},
    }
    app, runs = TestApp(set_as_current=False, enable_logging=False, config=config), list[tuple[Any, ...]]()

    @app.task(shared=False, name="charge", bind=True, acks_late=late)
    def charge(task: Any, order: int, *, currency: str) -> None:
        runs.append((order, currency, task.request.retries, (task.request.headers or {}).get("delayq_limit")))
        if len(runs) == 1:
            raise Backoff(0.1)

    app.finalize()
    with start_worker(app, pool="solo", perform_ping_check=False):
        charge.apply_async((1,), {"currency": "EUR"}, limit="busy", retries=2)
        until(lambda: len(runs) == 2)
    assert runs == [(1, "EUR", 2, "busy")] * 2
