"""Consumers of a cluster, whose queues and fanouts are on several nodes and move between them."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Exchange, Producer, Queue

from kombu_delayq.channel import connect_store
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import DEADLINE_S, until
from tests.support.looped import Looped, publish, queue_of
from tests.support.servers.cluster import PrivateCluster, slot_of
from tests.support.store.consuming import message
from tests.support.workers import reclaiming


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


def test_one_warning_tells_of_a_dead_consumer(cluster: PrivateCluster, caplog: pytest.LogCaptureFixture) -> None:
    """It names all queues to which something went back, although each has leases of its own."""
    cluster.flush()
    queues = queues_of_nodes(cluster)
    with Connection(cluster.url, transport_options={"consumer_ttl": 1}) as connection:
        channel = connection.default_channel
        for queue in queues:
            reclaiming.publish(channel.store, 1, queue)
        reclaiming.dead_with(channel.store, 3, *queues)
        worker = TransferWorker(lambda: connect_store(channel, channel.separate_pool()))
        with caplog.at_level(logging.WARNING, reclaiming.LOG):
            worker.start()
            try:
                until(lambda: reclaiming.gone(channel.store))
                [line] = reclaiming.logged(caplog)
            finally:
                worker.stop(20)
    assert line.endswith(f"3 went back ({', '.join(f'1 to {queue!r}' for queue in queues)})")


def test_a_message_is_adopted_when_its_node_is_there_again(
    cluster: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message before its time that cannot be adopted now is adopted later, and the connection goes on."""
    adopt, failed = Delivery.adopt, []

    def fail_once(*args: Any, **kwargs: Any) -> str:
        if not failed:
            failed.append(True)
            raise redis.ConnectionError("away")
        return adopt(*args, **kwargs)

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


NEWS = Exchange("news", "fanout")


PREFIXES = ({}, {"global_keyprefix": "app:"})


class Listener:
    """A consumer of a fanout, and what it has got."""

    #: Numbers of messages, each of which is published once.
    numbers = count()

    def __init__(self, connection: Connection, channel: Any) -> None:
        self.got: list[int] = []
        self._connection = connection
        self._channel = channel
        self.drain(0.2)  # it subscribes

    @property
    def port(self) -> int:
        """The port of the node that the subscription is at."""
        return int(self._channel.subclient.connection.port)

    def note(self, body: int, message: Any) -> None:
        """Takes a message."""
        self.got.append(body)
        message.ack()

    def drain(self, seconds: float, least: int = 0) -> bool:
        """Waits until a message has come that has the least number or a later one. Returns whether one has."""
        end = time.monotonic() + seconds
        while not (has_come := any(number >= least for number in self.got)) and time.monotonic() < end:
            with suppress(TimeoutError):
                self._connection.drain_events(timeout=0.2)
        return has_come

    def hears(self, producer: Producer) -> bool:
        """Whether a message comes that is published now, or soon; those that were published before do not count."""
        least, end = next(self.numbers), time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            try:
                producer.publish(next(self.numbers), exchange=NEWS, declare=[NEWS])
            except producer.connection.connection_errors:  # of the node that hangs, once
                continue
            if self.drain(0.5, least):
                return True
        return False


@contextmanager
def listening(cluster: PrivateCluster, options: dict[str, Any]) -> Iterator[tuple[Listener, Producer]]:
    """A listener, and a producer of its messages over another connection."""
    with Connection(cluster.url, transport_options=options) as connection, connection.clone() as other:
        channel = connection.channel()
        queue = Queue("", NEWS, exclusive=True, auto_delete=True)
        with Consumer(channel, [queue], accept=["json"]) as consumer:
            listener = Listener(connection, channel)
            consumer.register_callback(listener.note)
            yield listener, other.Producer(serializer="json")


@pytest.mark.parametrize("options", PREFIXES)
def test_reaches_consumers_at_other_nodes(cluster: PrivateCluster, options: dict[str, Any]) -> None:
    """Three consumers, wherever their subscriptions are, get what is published anywhere."""
    with (
        listening(cluster, options) as (first, producer),
        listening(cluster, options) as (second, _),
        listening(cluster, options) as (third, _),
    ):
        for listener in (first, second, third):
            assert listener.hears(producer)


def test_of_what_a_channel_holds_at_its_end_only_news_are_dropped(
    cluster: PrivateCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A message of a queue goes back, to be next; one of a fanout does not, and nobody looks for it in Redis."""
    cluster.flush()
    held: list[Any] = []
    with Connection(cluster.url) as connection, connection.clone() as other:
        channel = connection.channel()
        news = Queue("", NEWS, exclusive=True, auto_delete=True)
        with Consumer(channel, [queue_of("orders"), news], accept=["json"], on_message=held.append):
            publish(other, "orders", 1)
            while {message.payload for message in held} != {1, 2}:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.5)
                if held:  # it has subscribed, or does so now
                    other.Producer(serializer="json").publish(2, exchange=NEWS, declare=[NEWS])
        channel.close()
        store = other.default_channel.store
        assert (store.fetching.ready(["orders"]), store.consumers.counts()) == ([1], {})
        assert store.client.exists("unacked") == 0
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


@pytest.mark.parametrize("options", PREFIXES)
def test_survives_its_node(own_cluster: PrivateCluster, options: dict[str, Any]) -> None:
    """When the node is killed, and when the next one hangs, the consumer's connection stays and hears again."""
    with listening(own_cluster, options) as (listener, producer):
        assert listener.hears(producer)
        first = next(node for node in own_cluster.nodes if node.port == listener.port)
        first.kill()
        assert listener.hears(producer)
        assert listener.port != first.port
        first.start()
        own_cluster.await_agreement()
        second = next(node for node in own_cluster.nodes if node.port == listener.port)
        second.stop()
        assert listener.hears(producer)
        assert listener.port != second.port
        second.go_on()
