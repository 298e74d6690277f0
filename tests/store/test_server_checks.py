"""What the store says of the server itself: its version and its eviction policy."""

from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.store import DelayStore
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import KEYS


class Claims(redis.Redis):
    """A client whose server says of itself what the test wants; no server of that age can be had."""

    def __init__(self, **said: Any) -> None:
        super().__init__()
        self.said = said

    def info(self, *sections: str, **kwargs: Any) -> dict[str, Any]:
        """Returns what the test wants."""
        return self.said


def test_the_server_in_use_is_new_enough(store: DelayStore) -> None:
    """The server that these tests run on passes the check."""
    store.check_version()


@pytest.mark.parametrize("version", ["2.8.24", "5.0.14", "6.0.16", "6.1.241"])
def test_an_older_server_is_refused_by_its_version(version: str) -> None:
    """A server before 6.2 is refused with an error that names its version and the one that is needed."""
    with pytest.raises(UnsupportedRedis, match=rf"Redis {version} .* 6\.2"):
        DelayStore(Claims(redis_version=version)).check_version()


@pytest.mark.parametrize("version", ["6.2.0", "6.2", "7.0.15", "8.0.0", "10.0.1", "255.255.255", "v8-custom", ""])
def test_later_servers_are_taken(version: str) -> None:
    """A server of 6.2 or later passes, and so does one that does not tell."""
    DelayStore(Claims(redis_version=version)).check_version()
    DelayStore(Claims()).check_version()


def test_a_server_that_hides_its_info_is_taken_as_it_is(make_store: MakeStore, own_server: PrivateRedis) -> None:
    """A user who may not ask for INFO gets neither an error nor a warning."""
    make_store(own_server).client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info")
    store = DelayStore(redis.Redis(port=own_server.port, username="app", password="pw"), KEYS)
    store.check_version()
    assert store.eviction_warning() == ""
    store.close()


def test_a_server_that_may_evict_is_warned_of(store: DelayStore) -> None:
    """An evicting ``maxmemory-policy`` is named with its risk and the remedy; noeviction is not mentioned."""
    assert store.eviction_warning() == ""
    try:
        for policy in ("allkeys-lru", "volatile-ttl", "allkeys-random"):
            store.client.config_set("maxmemory-policy", policy)
            warning = store.eviction_warning()
            assert policy in warning
            assert "drop delayed messages" in warning
            assert "Set it to noeviction" in warning
    finally:
        store.client.config_set("maxmemory-policy", "noeviction")
