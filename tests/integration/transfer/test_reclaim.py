"""The leading transfer worker gives back what consumers held whose lease has ended."""

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from threading import Thread
from time import sleep
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.consuming.taking import Landing, Requeued
from kombu_delayq.store.types import Offer
from kombu_delayq.transfer.reclaim import Reclaiming
from tests.support.conditions import stays, until
from tests.support.store.consuming import (
    CONSUMED,
    CONSUMERS,
    INDEX,
    ME,
    OTHER,
    UNACKED,
    end_lease,
    land,
    lives,
    message,
    take,
)
from tests.support.store.keyspace import contents
from tests.support.workers.transfers import Transfer

#: A worker looks at the leases every eighth of it, and gives living consumers 3/8 of it to come back.
TTL_S = 1.0
LOG = "kombu_delayq.transfer.reclaim"

#: Makes a store like those of the transfer workers.
Reclaim = Callable[..., None]


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    store = DelayStore(redis.Redis(port=redis_server.port), options=Options(consumer_ttl=60))
    yield store
    store.close()


@pytest.fixture
def reclaim(transfer: Transfer) -> Reclaim:
    """Starts transfer workers; keywords are options."""

    def start(count: int = 1, **options: Any) -> None:
        transfer(count, poll_interval=0.05, **{"consumer_ttl": TTL_S, **options})

    return start


def publish(store: DelayStore, count: int, queue: str = "q", **properties: Any) -> None:
    for number in range(count):
        store.client.lpush(queue, json.dumps(message(number, **properties)))


def gone(store: DelayStore, name: str = ME) -> bool:
    """Whether nothing is left of a consumer."""
    return name.encode() not in [*store.client.zrange(CONSUMERS, 0, -1), *store.client.hkeys(CONSUMED)]


def numbers(store: DelayStore, key: str = "q") -> list[int]:
    """Returns the numbers of the messages of a list, those first that are consumed first."""
    return [json.loads(body)["headers"]["number"] for body in reversed(store.client.lrange(key, 0, -1))]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns what was logged, as soon as anything was: a moment after the consumer is gone."""
    return until(lambda: [record.getMessage() for record in caplog.records if record.name == LOG])


def dead_with(store: DelayStore, count: int, *queues: str, name: str = ME) -> None:
    """Makes a consumer that took messages of queues and died."""
    lives(store, name, queues=queues or ("q",))
    assert len(take(store, count, *queues, name=name)) == count
    end_lease(store, name)


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


def test_they_are_marked_as_kombu_does_and_counted(store: DelayStore, reclaim: Reclaim) -> None:
    """A message that comes back is redelivered, for headers and for delivery_info, and its deaths are counted."""
    publish(store, 1)
    publish(store, 1, **{"x-delivery-count": 4})
    dead_with(store, 2)
    reclaim()
    until(lambda: gone(store))
    again = [json.loads(body) for body in store.client.lrange("q", 0, -1)]
    for each, count in zip(again, (5, 1), strict=True):
        assert each["headers"] == {"number": 0, "redelivered": True}
        assert each["properties"]["delivery_info"] == {**message()["properties"]["delivery_info"], "redelivered": True}
        assert each["properties"]["x-delivery-count"] == count
        assert each["body"] == "body 0"


def test_each_goes_to_its_queue_and_its_priority(store: DelayStore, reclaim: Reclaim) -> None:
    """Messages of several queues and priorities go back to the lists from which they came."""
    for queue in ("a", "ü {x}"):
        for priority in (0, 4, 9):
            key = store.keys.ready(queue, (0, 3, 6, 9))[{0: 0, 4: 1, 9: 3}[priority]]
            store.client.lpush(key, json.dumps(message(priority, priority)))
    before = {key: store.client.llen(key) for key in contents(store.client)}
    dead_with(store, 6, "a", "ü {x}")
    reclaim()
    until(lambda: gone(store))
    assert {key: store.client.llen(key) for key in before} == before


def test_landing_lists_are_emptied(store: DelayStore, reclaim: Reclaim) -> None:
    """Messages that had come to a consumer that waited, and that were not noted yet, go back as they are."""
    publish(store, 3)
    store.client.lpush("q\x06\x169", json.dumps(message(9)))
    lives(store)
    for step in (0, 3):
        assert land(store, Landing("q", step, ME))
    end_lease(store)
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [0, 1, 2]
    assert numbers(store, "q\x06\x169") == [9]
    assert len(store.client.keys("*landing*")) == 0


def test_what_a_leader_had_begun_another_ends(store: DelayStore, reclaim: Reclaim) -> None:
    """A consumer that a leader has fenced off, before it died, is given back by the next."""
    publish(store, 3)
    dead_with(store, 3)
    assert store.consumers.fence([ME]) == [ME]
    store.taking.requeue([Requeued(f"{ME}.3", "q", 0, json.dumps(message(2)))], "next")
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [0, 1, 2]


def test_a_deputy_steps_in_for_a_leader_that_gives_nothing_back(store: DelayStore) -> None:
    """What nobody gives back for half a lease more, as beside a leader of an earlier release, a deputy gives back."""
    deputy = Reclaiming()
    store = DelayStore(store.client, options=Options(consumer_ttl=2))
    publish(store, 2)
    dead_with(store, 2)

    def looks() -> bool:
        deputy.go_on(store, leads=False)
        return not gone(store)

    stays(looks, 0.9)
    until(lambda: not looks())
    assert numbers(store) == [0, 1]


def test_a_living_consumer_keeps_what_it_holds(store: DelayStore, reclaim: Reclaim) -> None:
    """While one consumer's messages go back, those of another stay where they are, and so do those of stock kombu."""
    publish(store, 4)
    dead_with(store, 2)
    lives(store, OTHER)
    assert len(take(store, 2, name=OTHER)) == 2
    store.client.zadd(INDEX, {"of stock": 5})
    store.client.hset(UNACKED, "of stock", '[{}, "", "q"]')
    reclaim()
    until(lambda: gone(store))
    assert numbers(store) == [0, 1]
    assert set(store.client.hkeys(UNACKED)) == {f"{OTHER}.1".encode(), f"{OTHER}.2".encode(), b"of stock"}
    assert store.consumers.beat(OTHER, ["q"])


def test_consumers_have_the_time_to_come_back(store: DelayStore, reclaim: Reclaim) -> None:
    """A worker that has just reached Redis waits for consumers, whose leases have ended meanwhile, to renew them."""
    publish(store, 2)
    dead_with(store, 1)
    dead_with(store, 1, name=OTHER)
    reclaim(consumer_ttl=4)
    stays(lambda: store.client.zscore(CONSUMERS, ME), 0.5)
    assert store.consumers.beat(ME, ["q"], [f"{ME}.1"])
    until(lambda: gone(store, OTHER))
    assert store.client.hkeys(UNACKED) == [f"{ME}.1".encode()]


def test_after_an_outage_consumers_have_the_time_to_come_back(own_server: PrivateRedis, transfer: Transfer) -> None:
    """When Redis was silent for longer than all leases, what living consumers hold is not given back."""
    store = DelayStore(redis.Redis(port=own_server.port))
    transfer(server=own_server, poll_interval=0.05, consumer_ttl=2, redis_timeout=60)
    store.client.zadd(CONSUMERS, {OTHER: 1})
    until(lambda: gone(store, OTHER))  # so the worker has no patience left
    publish(store, 1)
    lives(store)
    take(store, 1)
    store.client.zadd(CONSUMERS, {ME: store.now_ms() + 500})
    os.kill(own_server.pid, signal.SIGSTOP)
    sleep(1.5)  # for so long Redis is silent
    os.kill(own_server.pid, signal.SIGCONT)
    stays(lambda: 0 < store.client.zscore(CONSUMERS, ME) < store.now_ms(), 0.4)
    assert store.consumers.beat(ME, ["q"], [f"{ME}.1"])
    assert store.taking.ack([f"{ME}.1"]) == []
    store.close()


def test_any_number_of_workers_gives_back_once(store: DelayStore, reclaim: Reclaim) -> None:
    """With several workers, any of which may lead next, each message comes back once."""
    reclaim(3)
    for number in range(5):
        publish(store, 20)
        dead_with(store, 20, name=f"host:{number}:00000000")
        until(lambda number=number: gone(store, f"host:{number}:00000000"))
        assert numbers(store) == [*range(20)]
        store.client.delete("q")


def test_two_leaders_give_back_once(store: DelayStore, redis_server: PrivateRedis) -> None:
    """Also when two workers lead at the same time, for a moment, each message comes back once."""
    others = [DelayStore(redis.Redis(port=redis_server.port), options=Options(consumer_ttl=1)) for _ in range(2)]
    leaders = [Reclaiming(), Reclaiming()]
    publish(store, 300)
    dead_with(store, 300)

    def lead(leader: Any, of: DelayStore) -> None:
        until(lambda: leader.go_on(of, leads=True) or gone(store))

    threads = [Thread(target=lead, args=each) for each in zip(leaders, others, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers(store)) == [*range(300)]
    assert not store.client.exists(INDEX, UNACKED)


def test_what_is_no_message_goes_back_as_it_was(store: DelayStore, reclaim: Reclaim) -> None:
    """Whatever else was in a queue is next in it again, byte for byte, so that it does not stay in hand for ever."""
    bodies = [b"no JSON", json.dumps(message(1)).encode(), b"[]", b"\x00\xff"]
    store.client.lpush("q", *bodies)
    dead_with(store, 4)
    reclaim()
    until(lambda: gone(store))
    found = store.client.lrange("q", 0, -1)[::-1]
    assert [found[0], *found[2:]] == [bodies[0], *bodies[2:]]
    assert not store.client.exists(INDEX, UNACKED)


def test_a_note_that_cannot_be_read_stays(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """What somebody else has noted under a consumer's tag stays for `delayq repair`, with a line in the log."""
    publish(store, 3)
    dead_with(store, 3)
    store.client.hset(UNACKED, f"{ME}.1", "no note")
    store.client.hset(UNACKED, f"{ME}.3", '[{}, "exchange", "key"]')
    with caplog.at_level(logging.WARNING, LOG):
        reclaim()
        until(lambda: gone(store))
    assert numbers(store) == [1]
    assert set(store.client.hkeys(UNACKED)) == {f"{ME}.1".encode(), f"{ME}.3".encode()}
    [record] = logged(caplog)
    assert record.endswith(
        f"Of what it held, 1 went back (1 to 'q'); 2 cannot be read and stay for `delayq repair`, among them {ME}.1"
    )


def test_one_warning_tells_of_a_dead_consumer(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """It names host and process, and how many messages went to which queue."""
    for queue, count in (("b", 2), ("a", 1)):
        publish(store, count, queue)
    dead_with(store, 3, "b", "a")
    with caplog.at_level(logging.INFO, LOG):
        reclaim()
        until(lambda: gone(store))
    assert logged(caplog) == [
        f"consumer {ME}, which was process 1 on host host, is dead or was silent for too long. Of what it held, 3 went "
        "back (1 to 'a', 2 to 'b')"
    ]


def test_a_queue_of_the_wrong_type_holds_up_no_other(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of that queue stay in hand, with one line in the log, until the key is gone; all others go back."""
    publish(store, 2, "a")
    publish(store, 2, "b")
    dead_with(store, 4, "a", "b")
    publish(store, 1, "c")
    dead_with(store, 1, "c", name=OTHER)
    store.client.sadd("a", "somebody else's")
    with caplog.at_level(logging.ERROR, LOG):
        reclaim()
        until(lambda: gone(store, OTHER))
        until(lambda: store.client.llen("b") == 2)
        stays(lambda: store.client.hlen(UNACKED) == 2 and not gone(store), 0.5)
    [record] = logged(caplog)
    assert record.startswith(f"some messages of the dead consumer {ME} stay in hand: WRONGTYPE key a holds a set")
    store.client.delete("a")
    until(lambda: gone(store))
    assert [numbers(store, queue) for queue in "abc"] == [[0, 1], [0, 1], [0]]


def test_leases_of_the_wrong_type_stop_no_delivery(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody else's key is in the place of the leases, messages are delivered, and it is logged once."""
    store.client.set(CONSUMERS, "somebody else's")
    with caplog.at_level(logging.ERROR, LOG):
        reclaim()
        store.delivery.offer("q", Offer("i", "+500", 0, "body"))
        until(lambda: store.client.llen("q"))
    [record] = logged(caplog)
    assert record.startswith("what dead consumers held is not given back: ")


def test_a_name_of_another_form_is_no_error(store: DelayStore, reclaim: Reclaim) -> None:
    """Whatever else is among the consumers goes when its time has come."""
    store.client.zadd(CONSUMERS, {b"\xff": 1, "": 2, "x": 3})
    store.client.hset(CONSUMED, b"\xff", "no JSON")
    reclaim()
    until(lambda: not store.client.exists(CONSUMERS, CONSUMED))


def test_a_full_redis_takes_messages_back(own_server: PrivateRedis, transfer: Transfer) -> None:
    """A Redis that refuses every other write takes back what dead consumers held."""
    store = DelayStore(redis.Redis(port=own_server.port))
    publish(store, 3)
    dead_with(store, 3)
    transfer(server=own_server, poll_interval=0.05, consumer_ttl=TTL_S)
    store.client.config_set("maxmemory", 1)
    until(lambda: gone(store))
    assert numbers(store) == [0, 1, 2]
    store.close()


@pytest.mark.parametrize("limit", [1, 3])
def test_a_message_at_its_delivery_limit_is_buried(store: DelayStore, reclaim: Reclaim, limit: int) -> None:
    """With its last allowed death a message goes to the dead letters, behind older ones, and only there."""
    publish(store, 1, **{"x-delivery-count": limit - 1})
    store.client.rpush("dead letters", json.dumps(message(7)))
    dead_with(store, 1)
    reclaim(delivery_limit=limit, delivery_limit_queue="dead letters")
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
