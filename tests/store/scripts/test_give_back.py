import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import KEYS, popped
from tests.support.store.priorities import SOME_STEPS, Kombu


def test_the_message_is_the_next_to_be_consumed(client: redis.Redis) -> None:
    """A message given back stands at the end of its list from which kombu consumes."""
    client.lpush("q", "behind")
    assert DelayStore(client, KEYS).delivery.give_back("q", 0, "taken") == 2
    assert client.brpop(["q"]) == ("q", "taken")


@pytest.mark.parametrize("steps", SOME_STEPS)
def test_it_goes_to_the_list_of_its_priority(make_store: MakeStore, steps: tuple[int, ...]) -> None:
    """With any priority steps, a message given back goes to the list from which kombu took it."""
    store, kombu = make_store(steps=steps), Kombu(steps, "\x06\x16")
    for priority in range(10):
        store.delivery.give_back("q", priority, "taken")
        assert popped(store.client, kombu._q_for_pri("q", priority)) == [b"taken"]
    assert not store.client.keys()


def test_a_full_redis_takes_it_back() -> None:
    """A Redis that refuses every other write takes back what it gave a moment ago."""
    with PrivateRedis() as server, server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            client.rpush("q", "taken")
        DelayStore(client, KEYS).delivery.give_back("q", 0, "taken")
        assert client.lrange("q", 0, -1) == ["taken"]
