"""``know.lua``: makes a queue known, if it can."""

import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.connection.commands import RedisCommands
from kombu_delayq.store import DelayStore
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import waiting


def test_a_queue_is_known_once(store: DelayStore) -> None:
    """Transfer workers find the name, however often it is told."""
    assert store.queues.know("q")
    assert store.queues.know("q")
    assert store.queues.names() == ["q"]


def test_a_full_redis_refuses_without_an_error(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """Where there is no room for a name, the caller learns it, and nothing is raised."""
    store = make_store(own_server)
    store.client.config_set("maxmemory", 1)
    assert not store.queues.know("q")
    store.client.config_set("maxmemory", 0)
    assert store.queues.names() == []


def test_a_message_that_fills_redis_is_published(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A publish that Redis has taken raises nothing, although Redis is too full to be told the queue's name again."""
    store = make_store(own_server)
    known, offer, again = store.delivery.offer_commands("q", [waiting("i")])
    commands = RedisCommands(store.client)
    commands.send([known, offer])
    store.client.config_set("maxmemory", 1)
    try:
        commands.send([again])
    except redis.ResponseError as error:
        raise AssertionError("the publish would be taken for failed") from error
    finally:
        store.client.config_set("maxmemory", 0)
    assert store.queues.size("q") == 1
