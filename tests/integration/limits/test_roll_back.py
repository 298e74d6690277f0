"""What waits in sub-queues goes back to the lists of its queue where nobody is left that takes it from there."""

import json
import logging
from collections.abc import Iterator

import pytest
import redis
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore, turns
from kombu_delayq.channel import connect_store
from kombu_delayq.store import DelayStore
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.store.consuming import ME, OTHER, fetch, lives
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import KEYS


@pytest.fixture
def store(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[DelayStore]:
    """A store in whose queue ``orders`` three of four messages wait in a sub-queue, and a transfer worker leads."""
    for name, short_s in (("LOOK_S", 0.05), ("QUEUES_S", 0.05), ("UNCONSUMED_S", 0.2)):
        monkeypatch.setattr(turns, name, short_s)
    store = DelayStore(redis.Redis(port=redis_server.port), KEYS)
    store.part(LimitStore).declare({"account": Limit(running=1)}, ["orders"])
    for number in range(4):
        body = {"body": f"{number}", "headers": {LIMIT_HEADER: "account:7"}, "properties": {"delivery_tag": "t"}}
        body["properties"]["delivery_info"] = {"exchange": "", "routing_key": "orders"}  # type: ignore[index]
        store.client.lpush("orders", json.dumps({**body, "content-type": "text/plain", "content-encoding": "utf-8"}))
    lives(store, queues=("orders",))
    assert len(fetch(store, 8, "orders")) == 1
    assert (store.client.llen("orders"), store.fetching.size("orders")) == (0, 3)
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        channel = connection.default_channel
        worker = TransferWorker(lambda: connect_store(channel, channel.separate_pool()))
        worker.start()
        until(lambda: store.leases.leader() is not None)
        yield store
        worker.stop(20)
    store.close()


def test_stock_consumers_get_what_waits_in_sub_queues(
    store: DelayStore, redis_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """After the last consumer has left that knows limits, stock kombu gets every message, in order; the log says so."""
    with caplog.at_level(logging.WARNING, turns.__name__):
        store.fetching.ack([f"{ME}.1"], "orders")
        store.consumers.leave([ME], "orders")
        until(lambda: store.client.llen("orders") == 3)
    with Connection(redis_server.url) as stock:
        channel = stock.default_channel
        found = [channel.basic_get("orders", no_ack=True) for _ in range(3)]
    assert [message.body for message in found] == [b"1", b"2", b"3"]
    assert "has no consumer that knows limits by key: 3 messages" in caplog.text


def test_consumers_of_a_version_without_limits_get_what_waits(store: DelayStore) -> None:
    """A consumer that lives, but does not say that it knows places, is none for which messages stay in sub-queues."""
    store.consumers.note_queues(["orders"])
    lives(store, OTHER, queues=("orders",))
    about = json.loads(store.client.hget(KEYS.consumed(""), OTHER) or "")
    del about["places"]
    store.client.hset(KEYS.consumed(""), OTHER, json.dumps(about))
    store.consumers.leave([ME], "orders")
    until(lambda: store.client.llen("orders") == 3)


def test_messages_stay_for_a_consumer_that_knows_limits(store: DelayStore) -> None:
    """While one lives that knows places, the messages of full keys stay in their sub-queues."""
    led = store.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    until(lambda: store.client.info("commandstats")["cmdstat_evalsha"]["calls"] > led + 20)
    assert (store.client.llen("orders"), store.fetching.size("orders")) == (0, 3)
