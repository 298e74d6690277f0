"""``delayq repair`` gives back what consumers have that nobody knows."""

import json
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight
from tests.support.commands.shell import lines, run
from tests.support.store.consuming import ME, OTHER, end_lease, fetch, land, lives, message
from tests.support.store.keyspace import contents
from tests.support.store.tuned import tuned
from tests.support.workers.held import INDEX, KEYS, UNACKED, in_hand

HIGH = "\x06\x169"


@pytest.fixture
def store(raw_client: redis.Redis) -> DelayStore:
    """A store whose leases outlive every test, unless ``end_lease`` ends them."""
    return DelayStore(raw_client, KEYS, options=tuned(lease_ttl=600, consumer_ttl=600))


def publish(store: DelayStore, key: str, *numbers: int) -> None:
    store.client.lpush(key, *(json.dumps(message(number)) for number in numbers))


def numbers(store: DelayStore, key: str) -> list[int]:
    """Returns the numbers of the messages of a list, those first that are consumed first."""
    return [json.loads(body)["headers"]["number"] for body in reversed(store.client.lrange(key, 0, -1))]


def left_behind(store: DelayStore, *queues: str) -> None:
    """Leaves messages of each queue in in-flight lists and in hand of a consumer that nobody knows any more."""
    lives(store, queues=queues)
    for first, queue in enumerate(queues):
        publish(store, queue, 1, 2, 3, 4)
        publish(store, queue + HIGH, 9)
        assert len(fetch(store, 2, queue, first=2 * first)) == 2
        assert land(store, InFlight(queue, 0, ME))
        assert land(store, InFlight(queue, 3, ME))
    for queue in queues:
        store.consumers.leave([ME], queue)


def test_it_is_put_back_to_the_next_place(broker: PrivateRedis, store: DelayStore) -> None:
    """A dry run counts it, a repair puts it back in its order, marked and counted; a second repair finds all sound."""
    left_behind(store, "q", "{ü} x")
    before = contents(store.client)
    for findings in lines(broker, "repair", "--dry-run", code=1):
        assert (findings["landed"], findings["held"], findings["mended"]) == (2, 2, False)
    assert contents(store.client) == before
    assert [findings["queue"] for findings in lines(broker, "repair", "--yes")] == ["q", "{ü} x"]
    for queue in ("q", "{ü} x"):
        assert numbers(store, queue) == [3, 1, 2, 4]
        assert numbers(store, queue + HIGH) == [9]
        again = json.loads(store.client.lindex(queue, -2))
        assert (again["headers"]["redelivered"], again["properties"]["x-delivery-count"]) == (True, 1)
    assert in_hand(store.client) == store.client.exists(INDEX, UNACKED) == 0
    assert not store.client.keys("*landing*")
    assert lines(broker, "repair", "--dry-run") == []


def test_only_the_given_queues_are_mended(broker: PrivateRedis, store: DelayStore) -> None:
    """What another queue has lost stays for a repair of that queue."""
    left_behind(store, "a", "b")
    [findings] = lines(broker, "repair", "a", "--yes")
    assert (findings["queue"], findings["landed"], findings["held"]) == ("a", 2, 2)
    [findings] = lines(broker, "repair", "--dry-run", code=1)
    assert (findings["queue"], findings["landed"], findings["held"]) == ("b", 2, 2)


def test_after_a_roll_back_it_gives_back_what_dead_consumers_held(broker: PrivateRedis, store: DelayStore) -> None:
    """Where no transfer worker leads, consumers whose lease has ended are gone, too, and are forgotten."""
    lives(store, ME, OTHER)
    publish(store, "q", 1, 2, 3, 4)
    for name in (ME, OTHER):
        assert len(fetch(store, 1, name=name)) == 1
    assert land(store, InFlight("q", 0, ME))
    end_lease(store)
    [findings] = lines(broker, "repair", "--dry-run", code=1)
    assert (findings["landed"], findings["held"]) == (1, 1)
    assert store.consumers.heartbeat(ME, ["q"])  # nothing has changed, so it may come back
    end_lease(store)
    lines(broker, "repair", "--yes")
    assert numbers(store, "q") == [3, 1, 4]
    assert [lease.name for lease in store.consumers.all()] == [OTHER]
    assert not store.consumers.heartbeat(ME, ["q"])
    assert lines(broker, "repair", "--dry-run") == []


def test_what_living_consumers_and_stock_hold_is_left_alone(broker: PrivateRedis, store: DelayStore) -> None:
    """Neither messages of a consumer that lives or that a leader reclaims, nor those of stock kombu are strays."""
    store.leases.lead("leader")
    lives(store, ME, OTHER)
    for name in (ME, OTHER):
        publish(store, "q", 1, 2)
        fetch(store, 1, name=name)
        assert land(store, InFlight("q", 0, name))
    end_lease(store, OTHER)
    store.client.zadd(INDEX, {"of stock": 1})
    store.client.hset(UNACKED, "of stock", json.dumps([message(), "", "q"]))
    before = contents(store.client)
    assert lines(broker, "repair", "--yes") == []
    assert contents(store.client) == before


def test_a_note_that_cannot_be_read_is_named_and_left_alone(broker: PrivateRedis, store: DelayStore) -> None:
    """It is on stderr with its tag, and the exit code is 1; the rest is put back."""
    left_behind(store, "q")
    store.client.hset(UNACKED, f"{ME}.1", "no note")
    done = run(broker, "repair", "--yes", code=1)
    assert done.stderr == f"1 note of messages in hand cannot be read, such as {ME}.1\n"
    assert store.client.hkeys(UNACKED) == [f"{ME}.1".encode()]
    assert numbers(store, "q") == [3, 1, 4]


def test_an_in_flight_list_of_other_priority_steps_is_named(broker: PrivateRedis, store: DelayStore) -> None:
    """A list that the options of the command do not have is not guessed."""
    left_behind(store, "q")
    options: list[Any] = ["-o", "priority_steps=[0]"]
    assert (
        "belongs to a list that the option priority_steps does not have"
        in run(broker, *options, "repair", "--yes", code=1).stdout
    )
    assert store.client.exists(store.keys.in_flight("q", 3, ME))
