"""A message that consumers died with too often goes to the dead letters."""

import json

import pytest

from kombu_delayq.store import DelayStore
from tests.support.conditions import stays, until
from tests.support.store.consuming import ME, message
from tests.support.workers.held import CONSUMERS, INDEX, UNACKED
from tests.support.workers.reclaiming import Reclaim, dead_with, gone, numbers, publish


@pytest.mark.parametrize("limit", [1, 3])
def test_a_message_at_its_delivery_limit_is_buried(store: DelayStore, reclaim: Reclaim, limit: int) -> None:
    """With its last allowed death a message goes to the dead letters, behind older ones, and only there."""
    publish(store, 1, **{"x-delivery-count": limit - 1})
    store.client.rpush("dead letters", json.dumps(message(7)))
    dead_with(store, 1)
    reclaim(delivery_limit=limit, dead_letter_queue="dead letters")
    until(lambda: gone(store))
    assert not store.client.exists(INDEX, UNACKED, "q")
    assert numbers(store, "dead letters") == [7, 0]
    letter = json.loads(store.client.lindex("dead letters", 0))
    assert letter["properties"]["dead_letter"]["reason"] == "delivery limit reached"
    assert letter["properties"]["dead_letter"]["worker"] == ME


def test_what_was_prefetched_behind_a_poison_message_is_not_buried(store: DelayStore, reclaim: Reclaim) -> None:
    """Of what a dead consumer held only the message that it took first is buried, and the others go back, counted."""
    publish(store, 4, **{"x-delivery-count": 1})
    dead_with(store, 3)
    reclaim(delivery_limit=2)
    until(lambda: gone(store))
    assert numbers(store, "dead_letters") == [0]
    assert numbers(store) == [1, 2, 3]
    counts = [json.loads(body)["properties"]["x-delivery-count"] for body in store.client.lrange("q", 0, -1)]
    assert counts == [1, 2, 2]
    assert store.client.hgetall(store.keys.counts("q")) == {b"redelivered": b"2"}
    assert store.client.smembers(store.keys.dead_letters) == {b"dead_letters"}


def test_a_message_below_its_delivery_limit_goes_back(store: DelayStore, reclaim: Reclaim) -> None:
    """Until the limit is reached, and without one, messages go back to their queue."""
    publish(store, 1, **{"x-delivery-count": 1})
    dead_with(store, 1)
    reclaim(delivery_limit=3)
    until(lambda: gone(store))
    assert numbers(store) == [0]


def test_letters_that_cannot_be_buried_stay_in_hand(store: DelayStore, reclaim: Reclaim) -> None:
    """Where somebody else's key is in the place of the dead letters, the message is kept until it can be buried."""
    publish(store, 1)
    dead_with(store, 1)
    store.client.sadd("dead_letters", "somebody else's")
    reclaim(delivery_limit=1)
    until(lambda: store.client.zscore(CONSUMERS, ME) == 0)
    stays(lambda: store.client.hlen(UNACKED) == 1, 0.3)
    store.client.delete("dead_letters")
    until(lambda: gone(store))
    assert numbers(store, "dead_letters") == [0]
