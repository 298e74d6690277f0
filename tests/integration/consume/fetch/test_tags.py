"""Delivery tags: each delivery has one of its own, and the message keeps that of its publisher."""

import json

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
