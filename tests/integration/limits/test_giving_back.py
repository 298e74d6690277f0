"""A task raises ``Backoff`` while another thread acknowledges its message, or is about to."""

from types import SimpleNamespace
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Queue

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER, Backoff, Limit, LimitStore, give_back
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.workers.harness import TRANSPORT


@pytest.mark.parametrize("key", ["account:a", ""])
@pytest.mark.parametrize("is_sent", [True, False], ids=["acknowledged in Redis", "not yet"])
def test_its_message_waits_once(redis_server: PrivateRedis, client: redis.Redis, key: str, is_sent: bool) -> None:
    """The message waits for the end of the rest, and no acknowledgement that comes later takes it away."""
    store = DelayStore(client)
    store.part(LimitStore).declare({"account": Limit(running=1)}, ["orders"])
    got: list[Any] = []
    with Connection(redis_server.url, transport=TRANSPORT) as connection:
        headers = {"id": "i", **({LIMIT_HEADER: key} if key else {})}
        connection.Producer().publish({"n": 1}, routing_key="orders", headers=headers)
        with Consumer(connection, [Queue("orders")], callbacks=[lambda body, message: got.append(message)]):
            connection.drain_events(timeout=30)
            [message] = got
            message.begin()
            if is_sent:  # what `ack` does before it notes that it was called
                message.channel.basic_ack(message.delivery_tag)
            assert not message.acknowledged
            request: Any = SimpleNamespace(_message=message, acknowledged=True, id="i")
            assert give_back(request, Backoff(60))
            message.end()
            message.ack()
            found = store.part(LimitStore).parked("orders") if key else by_id.browse(store, "orders")
            assert len([*found]) == 1
            until(lambda: not store.client.hlen(store.keys.unacked("orders")))
            assert not store.client.exists(store.keys.places("orders"))
