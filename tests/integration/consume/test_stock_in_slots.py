"""Stock kombu and Celery beside ours on a server with hash slots: docs/how-to/cluster.md says what they can do."""

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj

pytestmark = pytest.mark.wide

CROSS_SLOT = "Keys in request don't hash to the same slot"


def test_a_stock_worker_ends_at_its_start_and_takes_nothing(make_proj: MakeProj, slots_server: PrivateRedis) -> None:
    """It ends with an error before it takes a message, and ours beside it runs them all."""
    proj = make_proj(slots_server)
    proj.send("record", "waits")
    stock = proj.worker(pool="solo", wait=False, broker_transport="")
    until(lambda: not stock.alive(), 40, "the stock worker ends")
    assert CROSS_SLOT in stock.log
    assert slots_server.client().llen("celery") == 1
    proj.worker(pool="solo")
    proj.await_runs(1, value="waits")


def test_a_stock_app_cannot_publish(slots_server: PrivateRedis) -> None:
    """Celery declares the queue first, and so gets an error and leaves nothing in Redis, due now or later."""
    app = Celery("stock", broker=slots_server.url, set_as_current=False)
    for options in ({}, {"countdown": 60}):
        with pytest.raises(OperationalError, match=CROSS_SLOT):
            app.send_task("t", ignore_result=True, retry=False, **options)
    assert not slots_server.client().keys("*")
    app.close()
