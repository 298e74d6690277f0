"""``unlist.lua``: makes queues unknown, apart from their own keys, and notes when queues were used."""

import pytest
from redis.exceptions import ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import contents, refuses_a_key_of_the_wrong_type

QUEUES, USED = "delayq:queues", "delayq:used"


def test_a_queue_that_leaves_has_a_time_of_use(store: DelayStore) -> None:
    """The names go, each with the time at which it was last used, by Redis's clock where none was noted."""
    store.client.sadd(QUEUES, "old", "new", "other")
    store.client.zadd(USED, {"old": 5.0})
    before_ms = store.now_ms()
    store.queues.unlist(["old", "new"], [], 0)
    assert store.queues.names() == ["other"]
    times = dict(store.client.zrange(USED, 0, -1, withscores=True))
    assert times.pop(b"old") == 5.0
    assert before_ms - 1 <= times.pop(b"new") <= store.now_ms()
    assert times == {}


def test_a_queue_in_use_stays_known(store: DelayStore) -> None:
    """The use of a queue is noted anew, and no name is added."""
    store.client.sadd(QUEUES, "q")
    store.client.zadd(USED, {"q": 5.0})
    before_ms = store.now_ms()
    store.queues.unlist([], ["q", "unknown"], 0)
    assert store.queues.names() == ["q"]
    assert all(time >= before_ms - 1 for _, time in store.client.zrange(USED, 0, -1, withscores=True))
    assert store.client.zcard(USED) == 2


def test_old_times_of_use_are_removed(store: DelayStore) -> None:
    """Times that are older than asked for go, and nothing goes where none is to go."""
    now_ms = store.now_ms()
    store.client.zadd(USED, {"old": now_ms - 60_000, "new": now_ms - 1_000})
    before = contents(store.client)
    store.queues.unlist([], [], 0)
    assert contents(store.client) == before
    store.queues.unlist([], [], 30_000)
    assert store.client.zrange(USED, 0, -1) == [b"new"]


def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore) -> None:
    """Where somebody else's key is in the way, the error names it, and nothing is noted."""
    store.client.sadd(QUEUES, "q")
    refuses_a_key_of_the_wrong_type(store, USED, lambda: store.queues.unlist(["q"], ["p"], 0))


def test_a_registry_of_the_wrong_type_is_named_and_left_alone(store: DelayStore) -> None:
    """Where the names of queues are something else than a set, the error says so, and no use is noted."""
    store.client.set(QUEUES, "somebody else's")
    with pytest.raises(ResponseError, match=r"WRONGTYPE key .*delayq.*:queues"):
        store.queues.unlist(["q"], ["p"], 0)
    assert contents(store.client) == {QUEUES.encode(): b"somebody else's"}


def test_a_full_redis_forgets(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A Redis that refuses every other write lets queues be forgotten, and notes their use first."""
    store = make_store(own_server)
    store.client.sadd(QUEUES, "q", "p")
    store.client.config_set("maxmemory", 1)
    store.queues.unlist(["q"], ["p"], 1e9)
    assert store.queues.names() == ["p"]
    assert store.client.zcard(USED) == 2
