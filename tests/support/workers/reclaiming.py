"""Consumers of a store that die, and transfer workers that give back what these held."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.consuming import ME, end_lease, fetch, lives, message
from tests.support.workers.transfers import Transfer

#: A worker looks at the leases every eighth of it, and gives living consumers 3/8 of it to come back.
TTL_S = 1.0
#: The logger of what becomes of dead consumers.
LOG = "kombu_delayq.transfer.reclaim"
#: Starts transfer workers; keywords are options.
Reclaim = Callable[..., None]


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    """A store whose consumers have leases that outlive every test, unless ``end_lease`` ends them."""
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
    groups = store.consumers.slot_groups()
    known = [store.client.zrange(store.keys.consumers(group), 0, -1) for group in groups]
    noted = [store.client.hkeys(store.keys.consumed(group)) for group in groups]
    return name.encode() not in [each for found in (*known, *noted) for each in found]


def numbers(store: DelayStore, key: str = "q") -> list[int]:
    """Returns the numbers of the messages of a list, those first that are consumed first."""
    return [json.loads(body)["headers"]["number"] for body in reversed(store.client.lrange(key, 0, -1))]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns what was logged, as soon as anything was: a moment after the consumer is gone."""
    return until(lambda: [record.getMessage() for record in caplog.records if record.name == LOG])


def dead_with(store: DelayStore, count: int, *queues: str, name: str = ME) -> None:
    """Makes a consumer that took messages of queues and died."""
    lives(store, name, queues=queues or ("q",))
    assert len(fetch(store, count, *queues, name=name)) == count
    end_lease(store, name)
