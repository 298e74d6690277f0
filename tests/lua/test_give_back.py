import pytest
import redis

from celery_ext.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore


def test_the_message_is_the_next_to_be_consumed(client: redis.Redis) -> None:
    """A message given back stands at the end of its list from which kombu consumes."""
    client.lpush("q", "behind")
    assert DelayStore(client).give_back("q", 0, "taken") == 2
    assert client.brpop(["q"]) == ("q", "taken")


def test_it_goes_to_the_list_of_its_priority(client: redis.Redis) -> None:
    """A message given back goes to the list of its priority step."""
    DelayStore(client).give_back("q", 7, "taken")
    assert client.keys() == ["q\x06\x166"]


def test_a_full_redis_takes_it_back() -> None:
    """A Redis that refuses every other write takes back what it gave a moment ago."""
    with PrivateRedis() as server, server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            client.rpush("q", "taken")
        DelayStore(client).give_back("q", 0, "taken")
        assert client.lrange("q", 0, -1) == ["taken"]
