"""A store on a real server, in either layout, and a look at its keys."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.store.keyspace import Ear, ear_of
from tests.support.store.plain_names import PlainNames, client_of
from tests.support.store.tuned import tuned

#: Makes another store on the test's database; keywords as of DelayStore, and options.
MakeStore = Callable[..., DelayStore]


@pytest.fixture(params=os.environ.get("DELAYQ_LAYOUTS", " ".join(LAYOUTS)).split())
def layout(request: pytest.FixtureRequest) -> str:
    """The form in which stores keep messages. A test runs with both, unless it is marked for one."""
    return str(request.param)


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[redis.Redis]:
    """A client of an empty database; decodes replies, and names keys as on a plain server."""
    with client_of(redis_server.port, slots=redis_server.slots, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def make_store(redis_server: PrivateRedis, client: redis.Redis, layout: str) -> Iterator[MakeStore]:
    made: list[DelayStore] = []

    def make(
        server: PrivateRedis = redis_server, keys: Keys | None = None, steps: Any = (0, 3, 6, 9), **options: Any
    ) -> DelayStore:
        options = {"layout": layout, **options}
        keys = replace(keys or Keys(), slots=server.slots)
        store = DelayStore(redis.Redis(port=server.port), keys, steps, tuned(**options))
        if server.slots:  # the store itself uses names as they are, also those of a plain server
            store.client = PlainNames(connection_pool=store.client.connection_pool)
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
