"""Fanouts over a cluster: any node takes them, and a consumer's subscription goes on when its node goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue

from tests.support.servers.cluster import PrivateCluster

NEWS = Exchange("news", "fanout")
PREFIXES = ({}, {"global_keyprefix": "app:"})


class Listener:
    """A consumer of a fanout, and what it has got."""

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

    def drain(self, seconds: float) -> None:
        """Waits for messages until one has come."""
        end = time.monotonic() + seconds
        while not self.got and time.monotonic() < end:
            try:
                self._connection.drain_events(timeout=0.2)
            except TimeoutError:
                continue

    def hears(self, producer: Producer) -> bool:
        """Whether a message comes that is published now, or soon."""
        self.got.clear()
        end = time.monotonic() + 20
        while not self.got and time.monotonic() < end:
            try:
                producer.publish(1, exchange=NEWS, declare=[NEWS])
            except producer.connection.connection_errors:  # of the node that hangs, once
                continue
            self.drain(0.5)
        return bool(self.got)


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
        assert first.hears(producer)
        for listener in (second, third):
            listener.drain(10)
            assert listener.got


@pytest.mark.parametrize("options", PREFIXES)
def test_survives_its_node(own_cluster: PrivateCluster, options: dict[str, Any]) -> None:
    """When the node is killed, and when the next one hangs, the consumer's connection stays and hears again."""
    with listening(own_cluster, options) as (listener, producer):
        assert listener.hears(producer)
        first = next(node for node in own_cluster.nodes if node.port == listener.port)
        own_cluster.kill(first)
        assert listener.hears(producer)
        assert listener.port != first.port
        own_cluster.restart(first)
        own_cluster.await_agreement()
        second = next(node for node in own_cluster.nodes if node.port == listener.port)
        own_cluster.stop_process(second)
        assert listener.hears(producer)
        assert listener.port != second.port
        own_cluster.continue_process(second)
