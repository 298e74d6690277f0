"""What a process keeps by the name of a queue has a bound: a caller over HTTP may name any number of queues."""

import gc
from collections.abc import Iterator
from types import FunctionType, ModuleType

import pytest
from celery import Celery
from kombu.transport.memory import Channel

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.publish.recipe import Target
from celery_ext.serve.service import ServeBroker
from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import MOST_QUEUES
from tests.support.store.keyspace import waiting
from tests.support.store.layouts import hash_only
from tests.support.workers.harness import TRANSPORT

MARK = "a name that only this test has "
NAMES = [f"{MARK}{number}" for number in range(2 * MOST_QUEUES)]


def largest(*roots: object) -> int:
    """Returns how many of the names the largest dict or set has that is reached from some objects."""
    seen, left, most = set[int](), list(roots), 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, dict | set):
            most = max(most, sum(isinstance(key, str) and key.startswith(MARK) for key in one))
        left += gc.get_referents(one)
    return most


@pytest.fixture
def app(redis_server: PrivateRedis) -> Iterator[Celery]:
    app = Celery("bounded", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = TRANSPORT
    yield app
    app.close()


@hash_only
def test_a_store_forgets_queues(store: DelayStore) -> None:
    """Whoever counts, acknowledges and publishes in ever new queues keeps what it knows of the latest alone."""
    for name in NAMES:
        store.fetching.available([name])
        store.fetching.ack(["t"], name)
        store.delivery.offer(name, waiting("i"))
    assert 0 < largest(store) <= MOST_QUEUES


@hash_only
def test_a_server_forgets_queues(app: Celery, store: DelayStore) -> None:
    """A server remembers of the latest queues alone that they exist."""
    broker = ServeBroker(app, app.connection_for_read)
    try:
        for name in NAMES:
            store.client.lpush(name, "message")
            assert broker.has_queue(name)
        assert 0 < largest(broker) <= MOST_QUEUES
    finally:
        broker.close()


def test_a_template_leaves_no_queue_in_memory(app: Celery) -> None:
    """The broker in memory to which Celery sends a template is gone with it."""
    Target(app, "t", {"queue": NAMES[0]}).recipe((), {})
    assert NAMES[0] not in Channel.queues
