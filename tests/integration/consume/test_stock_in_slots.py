"""Stock kombu and Celery beside ours on a server with hash slots: docs/how-to/cluster.md says what they can do."""

from collections.abc import Iterator

import pytest
from celery import Celery
from kombu import Connection
from kombu.exceptions import OperationalError
from redis.exceptions import ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.harness import TRANSPORT, MakeProj

CROSS_SLOT = "Keys in request don't hash to the same slot"


@pytest.fixture(scope="module")
def slotted() -> Iterator[PrivateRedis]:
    """A server with hash slots, also where the other tests run on a plain one."""
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture
def empty(slotted: PrivateRedis) -> PrivateRedis:
    """The same, without keys."""
    slotted.client().flushall()
    return slotted


def test_a_stock_worker_ends_at_its_start_and_takes_nothing(make_proj: MakeProj, empty: PrivateRedis) -> None:
    """It ends with an error before it takes a message, and ours beside it runs them all."""
    proj = make_proj(empty)
    proj.send("record", "waits")
    stock = proj.worker(pool="solo", wait=False, broker_transport="")
    until(lambda: not stock.alive(), 40, "the stock worker ends")
    assert CROSS_SLOT in stock.log
    assert empty.client().llen("celery") == 1
    proj.worker(pool="solo")
    proj.await_runs(1, value="waits")


def test_a_stock_app_cannot_publish(empty: PrivateRedis) -> None:
    """Celery declares the queue first, and so gets an error and leaves nothing in Redis, due now or later."""
    app = Celery("stock", broker=empty.url, set_as_current=False)
    for options in ({}, {"countdown": 60}):
        with pytest.raises(OperationalError, match=CROSS_SLOT):
            app.send_task("t", ignore_result=True, retry=False, **options)
    assert not empty.client().keys("*")
    app.close()


def test_what_stock_kombu_publishes_without_a_declaration(empty: PrivateRedis) -> None:
    """A message of the highest priority is consumed; one of another stays in a list of the plain name."""
    with Connection(empty.url) as stock:
        for priority in (0, 5):
            stock.Producer().publish(priority, routing_key="q", priority=priority, retry=False)
    with Connection(empty.url, transport=TRANSPORT) as connection:
        queue = connection.SimpleQueue("q")
        message = queue.get(timeout=20)
        message.ack()
        assert message.payload == 0
        assert connection.default_channel._size("q") == 0
    [left] = empty.client().keys("q*")
    assert empty.client().llen(left) == 1


@pytest.mark.parametrize("priority_steps", [None, [0]])
def test_a_stock_consumer_of_single_messages_loses_them(empty: PrivateRedis, priority_steps: list[int] | None) -> None:
    """It takes a message and cannot note it, as it does with one list a queue whenever it consumes."""
    options = {} if priority_steps is None else {"priority_steps": priority_steps}
    with Connection(empty.url, transport_options=options) as stock:
        stock.Producer().publish("lost", routing_key="q", retry=False)
        assert empty.client().llen("q") == 1
        with pytest.raises(ResponseError, match=CROSS_SLOT):
            stock.default_channel.basic_get("q")
    assert not empty.client().keys("q*")
