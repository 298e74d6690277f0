"""Queues that are deleted by themselves, that expire, or that have their own names for keys."""

from contextlib import suppress
from time import monotonic
from typing import Any

import kombu
import pytest
from kombu import Exchange, Queue

from tests.support.conditions import until
from tests.support.workers.consumers import Acked, drain, held, none_held, publish, ready
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import KEYS

needs_expiry = pytest.mark.skipif(kombu.VERSION < (5, 7), reason="kombu before 5.7 knows no x-expires")


def test_an_auto_delete_queue_of_a_fanout_is_gone_after_its_consumer(proj: Proj) -> None:
    """The binding of an ``auto_delete`` queue ends with the channel; the queues beside it stay."""
    client = proj.server.client()
    everyone = Exchange("everyone", type="fanout")
    received = Acked()
    with proj.connection() as connection, proj.connection() as publisher:
        with connection.Consumer(Queue("ear", everyone, auto_delete=True), on_message=received.take):

            def is_subscribed() -> bool:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)
                return client.pubsub_numpat() == 1

            until(is_subscribed)
            assert client.scard(KEYS.bindings("everyone")) == 1
            publisher.Producer(exchange=everyone).publish("all")
            drain(connection, received, 1)
        publish(publisher, "one", queue="jobs")
    assert received == ["all"]
    assert client.scard("_kombu.binding.everyone") == 0
    assert ready(client) == ["one"]


@needs_expiry
def test_a_held_message_outlives_the_expiry_of_its_queue(proj: Proj) -> None:
    """A message that a consumer holds for longer than x-expires goes back to its queue, and is there to get."""
    client = proj.server.client()
    queue = Queue("jobs", expires=3)
    messages: list[Any] = []
    with proj.connection() as connection:
        queue(connection).declare()
        publish(connection, "a")
        with connection.Consumer(queue, on_message=messages.append, prefetch_count=1):
            drain(connection, messages, 1)
            ends = monotonic() + 4
            while monotonic() < ends:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)
            assert held(client) == 1
    assert ready(client) == ["a"]
    assert none_held(client)


@needs_expiry
def test_a_consumer_goes_on_after_its_queue_has_expired(proj: Proj) -> None:
    """A consumer that waited for longer than x-expires gets what is published then."""
    queue = Queue("jobs", expires=2)
    received = Acked()
    with proj.connection() as connection, proj.connection() as publisher:
        queue(publisher).declare()
        with connection.Consumer(queue, on_message=received.take):
            for n in range(2):
                ends = monotonic() + 2.5
                while monotonic() < ends:
                    with suppress(TimeoutError):
                        connection.drain_events(timeout=0.1)
                publish(publisher, n)
                drain(connection, received, n + 1)
    assert received == [0, 1]
    assert not proj.server.client().exists("jobs")


def test_keys_of_other_names_are_used_throughout(make_proj: MakeProj) -> None:
    """With ``global_keyprefix``, ``unacked_key``, ``unacked_index_key`` and ``sep`` no key has its usual name."""
    names = {"global_keyprefix": "app:", "unacked_key": "in_hand", "unacked_index_key": "in_hand_index", "sep": "|"}
    proj = make_proj(broker_transport_options={**names, "priority_steps": [0, 5]})
    client = proj.server.client()
    messages: list[Any] = []
    with proj.connection() as connection:
        publish(connection, "low", priority=5)
        publish(connection, "high")
        assert {*client.keys("*jobs*")} == {"app:jobs", "app:jobs|5"}
        with connection.Consumer(Queue("jobs"), on_message=messages.append):
            drain(connection, messages, 2)
        assert [message.payload for message in messages] == ["high", "low"]
        assert client.hlen("app:in_hand") == client.zcard("app:in_hand_index") == 2
        messages[0].ack()
        until(lambda: client.hlen("app:in_hand") == 1)
    assert ready(client, "app:jobs|5") == ["low"]
    assert not client.exists("app:jobs", "jobs", "unacked", "unacked_index", "app:in_hand", "app:in_hand_index")
