"""SCRIPT FLUSH at any moment."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
import redis
from kombu import Connection, Producer

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.channel import connect_store
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import DEADLINE_S, until
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import KEYS

pytestmark = pytest.mark.both_layouts

QUEUES = [f"orders-{number}" for number in range(4)]
COUNT = 400


@contextmanager
def _flushing(server: PrivateRedis) -> Iterator[list[int]]:
    """Flushes the script cache as fast as Redis answers. Gives the number of times."""
    stop, times = Event(), [0]

    def flush() -> None:
        with server.client() as client:
            while not stop.is_set():
                client.script_flush()
                times[0] += 1

    thread = Thread(target=flush)
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join()


def _publish_each(producer: Producer) -> None:
    for number in range(COUNT):
        producer.publish({"n": number}, routing_key=QUEUES[number % 4], DelaySeconds=0.3 + number % 7 / 10)


def _publish_batch(producer: Any) -> None:
    with producer.batch(max_size=50):
        _publish_each(producer)


@pytest.mark.parametrize("publish", [_publish_each, _publish_batch])
def test_flushed_scripts_are_no_trouble(
    redis_server: PrivateRedis, client: redis.Redis, publish: Any, layout: str
) -> None:
    """While the script cache is flushed all the time, all messages are published and delivered, once."""
    if publish is _publish_batch and not hasattr(Producer, "batch"):
        pytest.skip("Producer.batch is new in kombu 5.7")
    options = {"layout": layout}
    with (
        Connection(redis_server.url, transport=TRANSPORT, transport_options=options) as connection,
        _flushing(redis_server) as times,
    ):
        channel = connection.default_channel
        transfer = TransferWorker(partial(connect_store, channel, channel.separate_pool()))
        transfer.start()
        try:
            publish(connection.Producer())
            until(lambda: sum(map(client.llen, QUEUES)) >= COUNT, 120, "delivered")
        finally:
            transfer.stop(DEADLINE_S)  # with its lease given back
        assert times[0] > 10
    bodies = Counter(body for queue in QUEUES for body in client.lrange(queue, 0, -1))
    assert len(bodies) == COUNT
    assert set(bodies.values()) == {1}
    left = {key for key in client.keys("*{*") if ":counts" not in key}
    assert left <= {*map(KEYS.order, QUEUES), KEYS.queues}  # the leader may have stopped before it dropped the names
