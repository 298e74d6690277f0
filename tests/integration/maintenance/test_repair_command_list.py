"""``delayq repair`` in Redisson's layout: what can be delivered is delivered once, in order, and found by its id."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.commands.repairs import COUNT, PAST, SOUND, delivered, expected, message, offer
from tests.support.commands.shell import lines, run
from tests.support.store.keyspace import contents
from tests.support.store.redisson_layout import IDS, LISTED, NOTES, TIMEOUT
from tests.support.workers.held import KEYS


def store_of(raw_client: redis.Redis) -> DelayStore:
    return DelayStore(raw_client, KEYS, options=Options(layout="redisson"))


@pytest.fixture
def store(raw_client: redis.Redis) -> DelayStore:
    """A store with one queue, whose messages are published in an order that is not that of their due times."""
    store = store_of(raw_client)
    order = [n for third in range(3) for n in range(third, COUNT, 3)]
    for start in range(0, COUNT, 50):
        store.delivery.offer("q", *(offer(n, priority=(n % 5 == 0 and 3) or 0) for n in order[start : start + 50]))
    return store


def drop_members(raw_client: redis.Redis) -> None:
    raw_client.zrem(TIMEOUT, *raw_client.zrange(TIMEOUT, 0, -1)[::7])


def add_ghosts(raw_client: redis.Redis) -> None:
    raw_client.zadd(TIMEOUT, {f"ghost{n}": n for n in range(600)} | {"": 1, b"\x08": 2, b"\x07" * 17: 3})


def all_at_once(raw_client: redis.Redis) -> None:
    drop_members(raw_client)
    add_ghosts(raw_client)
    raw_client.delete(NOTES)
    raw_client.delete("{delayq}:queues")


DAMAGE: dict[str, tuple[Callable[[redis.Redis], Any], dict[str, Any]]] = {
    "nothing": (lambda raw_client: None, {}),
    "index": (lambda raw_client: raw_client.delete(TIMEOUT), {"unindexed": COUNT}),
    "queues": (lambda raw_client: raw_client.delete("{delayq}:queues"), {"unknown": True}),
    "all but the index": (lambda raw_client: raw_client.delete(LISTED, NOTES, IDS), {"unnamed": COUNT}),
    "all": (all_at_once, {"unknown": True, "lost": 603, "unindexed": 43}),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_after_a_repair_all_is_delivered_once_and_in_order(broker: PrivateRedis, store: DelayStore, what: str) -> None:
    """A dry run tells the damage and changes nothing, a repair mends it, a second one finds all sound."""
    raw_client = store.client
    damage, found = DAMAGE[what]
    damage(raw_client)
    before = contents(raw_client)
    [dry] = lines(
        broker, "-o", "layout=redisson", "repair", "--dry-run", *(["q"] if "but" in what else []), code=int(bool(found))
    )
    assert contents(raw_client) == before
    [mended] = lines(broker, "-o", "layout=redisson", "repair", "--yes", *(["q"] if "but" in what else []))
    for findings in (dry, mended):
        for kind, count in found.items():
            assert findings[kind] == count, kind
    assert mended["mended"] == bool(found)
    again = lines(broker, "-o", "layout=redisson", "repair", "--dry-run")
    assert [{kind: each[kind] for kind in SOUND} for each in again] == [SOUND] * len(again)
    assert again[0]["delayed"] == COUNT
    assert store.queues.names() == ["q"]
    if what == "nothing":
        assert contents(raw_client) == before
    assert len(store.lookup.get(["q"], [f"t{n}" for n in range(COUNT)])) == COUNT
    # A message that comes later, to the due time of others, goes behind them.
    late = offer(150)
    store.delivery.offer("q", late._replace(id="late", body=message("late", PAST, "tag -1")))
    order = expected()
    order.insert(order.index(151) + 2, -1)
    assert delivered(store) == order
    assert not raw_client.exists(TIMEOUT, LISTED, NOTES, IDS)


def test_queues_of_redisson_alone_are_left_alone(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """A queue that only other clients ever used is not searched for, and not made known."""
    raw_client.zadd(TIMEOUT, {b"\x07" * 17: 1})
    before = contents(raw_client)
    assert run(broker, "-o", "layout=redisson", "repair").stdout == "no queue holds delayed messages\n"
    assert contents(raw_client) == before
