"""Consumers of a cluster, whose queues are on several nodes and move between them."""

import json
from typing import Any

import pytest
import redis
from kombu import Connection

from kombu_delayq.options import Options
from kombu_delayq.redis import pools
from kombu_delayq.store import DelayStore
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.keys import Keys
from kombu_delayq.transfer.reclaim import Reclaiming
from tests.support.conditions import until
from tests.support.looped import Looped, publish
from tests.support.servers.cluster import PrivateCluster, slot_of
from tests.support.store.consuming import ME, end_lease, fetch, lives, message


def queues_of_nodes(cluster: PrivateCluster) -> list[str]:
    """Returns names of queues, one on each primary."""
    found = {cluster.node_of(name).port: name for name in (f"orders{number}" for number in range(12))}
    assert len(found) == 3
    return sorted(found.values())


def test_a_queue_that_moves_ends_no_connection(cluster: PrivateCluster) -> None:
    """While a queue goes to another node and back, all messages come once, and those in hand are acknowledged."""
    queues = queues_of_nodes(cluster)
    moving = queues[0]
    here = cluster.node_of(moving)
    there = next(node for node in cluster.primaries() if node is not here)
    with Connection(cluster.url) as sender, Looped(Connection(cluster.url), *queues, acks=False) as looped:
        channel = looped.channel
        for number, node in enumerate((there, here)):
            for queue in queues:
                publish(sender, queue, [queue, 2 * number])
            looped.until(lambda number=number: len(looped.received) == 6 * number + 3)  # type: ignore[misc]
            cluster.move_slot(slot_of(moving), node)
            for message_in_hand in looped.messages[-3:]:
                message_in_hand.ack()
            for queue in queues:
                publish(sender, queue, [queue, 2 * number + 1])
            looped.until(lambda number=number: len(looped.received) == 6 * number + 6)  # type: ignore[misc]
            for message_in_hand in looped.messages[-3:]:
                message_in_hand.ack()
        looped.until(lambda: not looped.store.consumers.counts(), "all are acknowledged")
        assert sorted(looped.received) == sorted([queue, number] for queue in queues for number in range(4))
        assert looped.channel is channel
        assert not channel.closed


def test_what_dead_consumers_held_goes_back_on_all_nodes(cluster: PrivateCluster) -> None:
    """Messages of queues on several nodes come back to their queues, and nothing is left of the consumer."""
    queues = queues_of_nodes(cluster)
    with Connection(cluster.url) as connection:
        client = pools.client_of(connection.default_channel.own_pool())
        store = DelayStore(client, Keys(slots=True), options=Options(consumer_ttl=1))
        for queue in queues:
            client.lpush(queue, json.dumps(message(queue)))
        lives(store, queues=tuple(queues))
        assert len(fetch(store, 3, *queues)) == 3
        assert store.figures.held() == dict.fromkeys(queues, 1)
        end_lease(store)
        leader = Reclaiming()
        until(lambda: leader.go_on(store, leads=True) or ME not in {lease.name for lease in store.consumers.all()})
        assert [client.llen(queue) for queue in queues] == [1, 1, 1]
        assert store.figures.held() == {}
        store.close()


def test_a_message_is_adopted_when_its_node_is_there_again(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message before its time that cannot be adopted now is adopted later, and the connection goes on."""
    adopt, failed = Delivery.adopt, []

    def fail_once(*args: Any) -> str:
        if not failed:
            failed.append(True)
            raise redis.ConnectionError("away")
        return adopt(*args)

    monkeypatch.setattr(Delivery, "adopt", fail_once)
    early = message(1)
    early["headers"] = {"eta": "2999-01-01T00:00:00+00:00"}
    with Looped(Connection(cluster.url), "orders") as looped:
        looped.store.client.lpush("orders", json.dumps(early))
        looped.until(lambda: looped.store.queues.size("orders") == 1)
        assert failed
        assert not looped.received
        assert not looped.channel.consumer.held
        assert not looped.store.consumers.counts()
