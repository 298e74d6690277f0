"""Takes that wait: soon answered, and gone when their caller has gone."""

from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import pytest
import redis
from celery import Celery

from celery_ext.serve.long_poll import LONGEST_PAUSE_S
from tests.integration.serve.deliveries.conftest import send
from tests.support.conditions import DEADLINE_S, until
from tests.support.serve.http_consumers import HttpConsumer, await_look, looks, numbers_of
from tests.support.serve.running import Served, connected


@pytest.fixture(autouse=True)
def declared(app: Celery, client: redis.Redis) -> None:
    """The queue is known, and empty."""
    send(app, 0)
    client.delete("orders")


def nobody_looks(client: redis.Redis) -> bool:
    """Whether nobody looks for longer than the longest pause between looks, so that nobody waits for messages."""
    before = looks(client)
    sleep(2 * LONGEST_PAUSE_S)
    return looks(client) == before


def test_a_wait_ends_in_time(consumer: HttpConsumer, client: redis.Redis) -> None:
    """Without messages the answer comes when the wait is over, has no lease, and leaves none in Redis."""
    begun = monotonic()
    assert consumer.take(wait="1.2s") == {"lease": None, "messages": []}
    assert 1.1 < monotonic() - begun < DEADLINE_S
    begun = monotonic()
    assert consumer.take() == {"lease": None, "messages": []}
    assert monotonic() - begun < DEADLINE_S
    assert not client.exists("{delayq}:consumers", "{delayq}:consumers:queues")
    until(lambda: nobody_looks(client))


def test_a_paused_queue_hands_out_nothing(app: Celery, consumer: HttpConsumer, client: redis.Redis) -> None:
    """Who waits already gets nothing while the queue is paused, and what came meanwhile as soon as it is resumed."""
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(consumer.take, wait="60s")
        await_look(client)
        assert consumer.client.post("/v1/queues/orders:pause").json() == {"outcome": "paused"}
        send(app, 7)
        assert consumer.take() == {"lease": None, "messages": []}
        await_look(client)
        assert not answer.done()
        assert consumer.client.get("/v1/queues/orders").json()["paused_since"]
        assert consumer.client.post("/v1/queues/orders:resume").json() == {"outcome": "resumed"}
        assert numbers_of(answer.result()) == [7]


def test_a_caller_who_has_gone_takes_nothing(
    app: Celery, served: Served, consumer: HttpConsumer, client: redis.Redis
) -> None:
    """The wait ends with the connection, and the message is for whoever takes next, not redelivered."""
    with connected(served.url) as gone:
        token = consumer.client.headers["Authorization"]
        head = f"Host: localhost\r\nAuthorization: {token}\r\n\r\n"
        gone.sendall(f"POST /v1/queues/orders:take?wait=60s HTTP/1.1\r\n{head}".encode())
        await_look(client)
    until(lambda: nobody_looks(client))
    send(app, 1)
    [message] = consumer.take()["messages"]
    assert (message["redelivered"], message["delivery_count"]) == (False, 0)
