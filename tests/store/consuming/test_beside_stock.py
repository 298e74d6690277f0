"""Stock kombu and the store's consumers on one database: each reads what the other notes."""

import json

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Requeued
from tests.support.store.consuming import fetch, lives, message, stock_channel
from tests.support.store.layouts import hash_only
from tests.support.workers.held import INDEX, UNACKED

pytestmark = [pytest.mark.plain_server, hash_only]


@pytest.mark.parametrize("queue", ["q", "ünï ✓", 'quo"ted', "{eu}.x", "back\\slash"])
@pytest.mark.parametrize("priority", [0, 3, 9])
def test_stock_restores_what_a_consumer_holds(store: DelayStore, queue: str, priority: int) -> None:
    """Stock's sweep puts a message with our note into the list of its queue and its priority, marked as redelivered."""
    lives(store)
    channel = stock_channel(store, visibility_timeout=-1)
    with channel.connection.client:
        channel._put(queue, message(1, priority))
        [taken] = fetch(store, 8, queue)
        channel.qos.restore_visible(interval=1)
        assert not store.client.exists(INDEX, UNACKED)
        restored = channel._get(queue)
    assert channel._q_for_pri(queue, priority) == (f"{queue}\x06\x16{priority}" if priority else queue)
    assert restored.pop("headers") == {"number": 1, "redelivered": True}
    assert restored["properties"]["delivery_info"].pop("redelivered")
    sent = json.loads(taken.body)
    del sent["headers"]
    assert restored == sent


def test_a_message_that_stock_has_restored_is_held_no_more(store: DelayStore) -> None:
    """After stock's sweep the consumer's acknowledgement finds nothing, and nothing is put back twice."""
    lives(store)
    channel = stock_channel(store, visibility_timeout=-1)
    with channel.connection.client:
        channel._put("q", message())
        [taken] = fetch(store)
        channel.qos.restore_visible(interval=1)
    assert store.fetching.requeue([Requeued(taken.tag, "q", 0, taken.body)], "next") == [taken.tag]
    assert store.fetching.ack([taken.tag], "q") == [taken.tag]
    assert store.client.llen("q") == 1


def test_a_heartbeat_keeps_stock_from_restoring(store: DelayStore) -> None:
    """Messages whose time is renewed are not swept, however long ago they were delivered."""
    lives(store)
    channel = stock_channel(store, visibility_timeout=100)
    with channel.connection.client:
        channel._put("q", message())
        [taken] = fetch(store)
        store.client.zadd(INDEX, {taken.tag: 5.0})
        assert store.consumers.heartbeat(taken.tag.rpartition(".")[0], ["q"], [taken.tag])
        channel.qos.restore_visible(interval=1)
    assert store.fetching.ack([taken.tag], "q") == []


def test_what_stock_holds_can_be_acknowledged_and_put_back(store: DelayStore) -> None:
    """The operations work on any tag, also on those of stock kombu."""
    channel = stock_channel(store)
    with channel.connection.client:
        channel.exchange_declare("x", "direct")
        for number in (1, 2):
            channel._put("q", message(number))
            channel.qos.append(channel.message_to_python(channel._get("q")), f"stock {number}")
        assert store.client.hlen(UNACKED) == 2
        assert store.fetching.ack(["stock 1"], "q") == []
        assert store.fetching.requeue([Requeued("stock 2", "q", 0, b"2")], "next") == []
        channel.qos._delivered.clear()
    assert store.client.lrange("q", 0, -1) == [b"2"]
