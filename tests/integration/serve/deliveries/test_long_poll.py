"""Takes that wait: soon answered, and gone when their caller has gone."""

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import monotonic, sleep

import pytest
import redis
from celery import Celery

from tests.integration.serve.deliveries.conftest import send
from tests.support.conditions import DEADLINE_S, until
from tests.support.serve.http_consumers import HttpConsumer, Serve, Served, numbers_of


@pytest.fixture(autouse=True)
def declared(app: Celery, client: redis.Redis) -> None:
    """The queue is known, and empty."""
    send(app, 0)
    client.delete("orders")


def looks(client: redis.Redis) -> int:
    """Counts how often somebody has looked whether messages are ready."""
    return int(client.info("commandstats").get("cmdstat_llen", {}).get("calls", 0))


def is_waited_for(client: redis.Redis) -> bool:
    """Whether somebody waits for messages now."""
    before = looks(client)
    sleep(0.3)
    return looks(client) - before > 4


def test_a_message_is_handed_out_soon_after_it_came(app: Celery, consumer: HttpConsumer) -> None:
    """A take that waits is answered some ms after the message came, in any list of the queue."""
    late_s = []
    with ThreadPoolExecutor(1) as threads:
        for number in range(20):
            answer = threads.submit(consumer.take, wait="30s")
            sleep(0.06 + number * 0.003)  # so that it comes at any point between two looks
            sent = monotonic()
            send(app, number, priority=number % 10)
            taken = answer.result()
            late_s.append(monotonic() - sent)
            assert numbers_of(taken) == [number]
            consumer.ack(taken)
    print(f"latency: median {median(late_s) * 1000:.1f} ms, worst {max(late_s) * 1000:.1f} ms")
    assert median(late_s) < 0.25


def test_a_wait_ends_in_time(consumer: HttpConsumer, client: redis.Redis) -> None:
    """Without messages the answer comes when the wait is over, has no lease, and leaves none in Redis."""
    begun = monotonic()
    assert consumer.take(wait="1.2s") == {"lease": None, "messages": []}
    assert 1.1 < monotonic() - begun < DEADLINE_S
    begun = monotonic()
    assert consumer.take() == {"lease": None, "messages": []}
    assert monotonic() - begun < DEADLINE_S
    assert not client.exists("{delayq}:consumers", "{delayq}:consumers:queues")
    until(lambda: not is_waited_for(client))


def test_a_paused_queue_hands_out_nothing(app: Celery, consumer: HttpConsumer, client: redis.Redis) -> None:
    """Who waits already gets nothing while the queue is paused, and what came meanwhile as soon as it is resumed."""
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(consumer.take, wait="30s")
        until(lambda: is_waited_for(client))
        assert consumer.client.post("/v1/queues/orders:pause").json() == {"outcome": "paused"}
        send(app, 7)
        assert consumer.take() == {"lease": None, "messages": []}
        until(lambda: is_waited_for(client))
        assert not answer.done()
        assert consumer.client.get("/v1/queues/orders").json()["paused_since"]
        assert consumer.client.post("/v1/queues/orders:resume").json() == {"outcome": "resumed"}
        assert numbers_of(answer.result()) == [7]


def test_a_caller_who_has_gone_takes_nothing(
    app: Celery, served: Served, consumer: HttpConsumer, client: redis.Redis
) -> None:
    """The wait ends with the connection, and the message is for whoever takes next, not redelivered."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as gone:
        token = consumer.client.headers["Authorization"]
        gone.sendall(
            f"POST /v1/queues/orders:take?wait=60s HTTP/1.1\r\nHost: {host}\r\nAuthorization: {token}\r\n\r\n".encode()
        )
        until(lambda: is_waited_for(client))
    until(lambda: not is_waited_for(client))
    send(app, 1)
    [message] = consumer.take()["messages"]
    assert (message["redelivered"], message["delivery_count"]) == (False, 0)


def test_a_server_that_ends_answers_those_who_wait(serve: Serve, client: redis.Redis) -> None:
    """On SIGTERM a take that waits is answered with no message, and the process ends soon."""
    served = serve()
    consumer = HttpConsumer(served)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(consumer.take, wait="60s")
        until(lambda: is_waited_for(client))
        served.process.send_signal(signal.SIGTERM)
        assert answer.result(20) == {"lease": None, "messages": []}
        assert served.process.wait(20) == 0, served.log
