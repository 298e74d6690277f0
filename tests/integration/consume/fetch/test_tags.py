"""Delivery tags: each delivery has one of its own, and the message keeps that of its publisher."""

import json

from kombu import Connection

from tests.support.looped import Looped, publish
from tests.support.workers.harness import Proj
from tests.support.workers.held import tags_in_hand


def test_a_message_keeps_the_tag_of_its_publisher(proj: Proj) -> None:
    """The tag in the properties is the same with each delivery, so that copies of one message can be told as such."""
    client = proj.server.client()
    with proj.connection() as sender:
        publish(sender, "a", 1)
    published = json.loads(client.lindex("a", 0))["properties"]["delivery_tag"]
    tags = set()
    for _ in range(2):
        with Looped(proj.connection(), "a", acks=False) as looped:
            looped.until(lambda looped=looped: looped.received == [1])  # type: ignore[misc]
            [message] = looped.messages
            tags.add(message.delivery_tag)
            assert message.properties["delivery_tag"] == published
            assert tags_in_hand(client) == [message.delivery_tag]
    assert len(tags) == 2
    assert published not in tags
    assert json.loads(client.lindex("a", 0))["properties"]["delivery_tag"] == published


def test_an_adopted_message_keeps_it_too(proj: Proj) -> None:
    """A message that goes into the store has the tag of its publisher, and nothing of the consumer that adopted it."""
    with Connection(proj.server.url) as stock, Looped(proj.connection(), "a") as looped:
        publish(stock, "a", 1, headers={"eta": "2999-01-01T00:00:00+00:00"})
        looped.until(lambda: looped.store.queues.size("a") == 1)
        [[body]] = [proj.server.client().hvals(proj.keys("a")[1])]
        assert looped.channel.consumer.name not in body
