"""A store on a real server, in either layout, and a look at its keys."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.store.keyspace import Ear, ear_of, keys_at
from tests.support.store.layouts import TESTED
from tests.support.store.tuned import tuned

#: Makes another store on the test's database; keywords as in DelayStore, and options.
MakeStore = Callable[..., DelayStore]


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PrivateRedis]:
    """A Redis Cluster of one node, for all tests that do not harm it: it refuses what touches two hash slots."""
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[PrivateRedis]:
    """A Redis Cluster of one node that the test may harm."""
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture
def layout(request: pytest.FixtureRequest) -> str:
    """The form in which stores keep messages: the first, where tests do not run in both."""
    return str(getattr(request, "param", TESTED[0]))


@pytest.fixture(scope="session")
def plain_server() -> Iterator[PrivateRedis]:
    """A server that is no cluster."""
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest, redis_server: PrivateRedis) -> PrivateRedis:
    """The server of a test's stores; with the mark ``plain_server`` one that is no cluster."""
    is_plain = request.node.get_closest_marker("plain_server") is not None
    return request.getfixturevalue("plain_server") if is_plain else redis_server


@pytest.fixture
def client(server: PrivateRedis) -> Iterator[redis.Redis]:
    """A client of an empty database; decodes replies."""
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def make_store(server: PrivateRedis, client: redis.Redis, layout: str) -> Iterator[MakeStore]:
    made: list[DelayStore] = []

    def make(
        server: PrivateRedis = server, keys: Keys | None = None, steps: Any = (0, 3, 6, 9), **options: Any
    ) -> DelayStore:
        options = {"layout": layout, **options}
        keys = keys_at(server)(**asdict(keys or Keys()))
        store = DelayStore(redis.Redis(port=server.port), keys, steps, tuned(**options))
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(make_store: MakeStore) -> DelayStore:
    """A store with all other options at their defaults, on an empty database."""
    return make_store()


@pytest.fixture
def ear(store: DelayStore) -> Iterator[Ear]:
    """Hears the store's announcements of new heads. In Redisson's layout each queue has its own channel."""
    ear = ear_of(store)
    yield ear
    ear.close()
