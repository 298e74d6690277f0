"""The leading transfer worker gives back what consumers held whose lease has ended, and buries what killed too many."""

import json

import pytest
import redis

from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight
from kombu_delayq.transfer.reclaim import Reclaiming
from tests.support.conditions import stays, until
from tests.support.store.consuming import ME, end_lease, land, lives, message
from tests.support.store.cost import round_trips
from tests.support.store.keyspace import contents
from tests.support.workers.held import CONSUMED, CONSUMERS, INDEX, UNACKED
from tests.support.workers.reclaiming import Reclaim, dead_with, gone, numbers, publish


def test_messages_come_back_in_their_order_before_all_others(store: DelayStore, reclaim: Reclaim) -> None:
    """What a dead consumer held is next in its queue, as it was before; nothing is left of the consumer."""
    publish(store, 503)
    dead_with(store, 500)
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [*range(503)]
    assert not store.client.exists(INDEX, UNACKED)


def test_all_come_back_however_slow_redis_is(
    store: DelayStore, reclaim: Reclaim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that never has time left gives back a page between two looks, and all of them in order."""
    monkeypatch.setattr("kombu_delayq.transfer.reclaim.SLICE_S", 0)
    publish(store, 1003)
    dead_with(store, 1000)
    for number in range(3):
        dead_with(store, 1, name=f"elsewhere:{number}:00000000")
    reclaim()
    until(lambda: not store.client.exists(CONSUMERS, CONSUMED))
    assert sorted(numbers(store)) == [*range(1003)]
    assert [number for number in numbers(store) if number < 1000] == [*range(1000)]


def test_hundreds_that_die_at_once_cost_few_round_trips(store: DelayStore) -> None:
    """What many consumers held comes back in some dozen calls, and each consumer's messages stay in their order."""
    names = [f"host:{number}:00000000" for number in range(150)]
    publish(store, 600)
    for name in names:
        dead_with(store, 4, name=name)
    reclaiming, impatient = Reclaiming(), DelayStore(store.client, options=Options(consumer_ttl=1))

    def give_back() -> None:
        until(lambda: reclaiming.go_on(impatient, leads=True) or not store.client.exists(CONSUMERS, CONSUMED))

    assert round_trips(store, give_back) < 150
    came = numbers(store)
    # A lease that ended a moment later is found a round later.
    assert sorted(came[at : at + 4] for at in range(0, 600, 4)) == [[*range(at, at + 4)] for at in range(0, 600, 4)]
    assert not store.client.exists(INDEX, UNACKED)


def test_each_goes_to_its_queue_and_its_priority(store: DelayStore, reclaim: Reclaim) -> None:
    """Messages of several queues and priorities go back to the lists from which they came."""
    client = redis.Redis(connection_pool=store.client.connection_pool)
    for queue in ("a", "ü {x}"):
        for priority in (0, 4, 9):
            key = store.keys.ready(queue, (0, 3, 6, 9))[{0: 0, 4: 1, 9: 3}[priority]]
            client.lpush(key, json.dumps(message(priority, priority)))
    before = {key: client.llen(key) for key in contents(client)}
    assert len(before) == 6
    dead_with(store, 6, "a", "ü {x}")
    reclaim()
    until(lambda: gone(store))
    assert {key: client.llen(key) for key in before} == before


def test_in_flight_lists_are_emptied(store: DelayStore, reclaim: Reclaim) -> None:
    """Messages that had come to a consumer that waited, and that were not noted yet, go back as they are."""
    publish(store, 3)
    store.client.lpush("q\x06\x169", json.dumps(message(9)))
    lives(store)
    for step in (0, 3):
        assert land(store, InFlight("q", step, ME))
    end_lease(store)
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [0, 1, 2]
    assert numbers(store, "q\x06\x169") == [9]
    assert len(store.client.keys("*landing*")) == 0


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
