"""A server, consumers over HTTP, and an app that publishes."""

from collections.abc import Iterator

import kombu.pools
import pytest
import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.serve.http_consumers import HttpConsumer, serve, serve_to_holders
from tests.support.serve.running import Served
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import KEYS

__all__ = ["serve"]


@pytest.fixture(scope="session")
def running(shared_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server for all tests that do not harm it."""
    served = serve_to_holders(shared_server.url, tmp_path_factory.mktemp("served"))
    yield served
    served.kill()


@pytest.fixture
def served(running: Served, client: redis.Redis) -> Served:
    """A server on an empty broker."""
    return running


@pytest.fixture
def consumer(served: Served) -> Iterator[HttpConsumer]:
    """A consumer of it."""
    consumer = HttpConsumer(served)
    yield consumer
    consumer.client.close()


@pytest.fixture
def app(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[Celery]:
    """Publishes to the broker."""
    app = Celery("producer", broker=redis_server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True)
    yield app
    settings = app.connection_for_write()
    for pools in (kombu.pools.producers, kombu.pools.connections):  # which know what they have declared
        pools[settings].force_close_all()
        del pools[settings]
    app.close()


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis) -> Iterator[DelayStore]:
    """The store of the broker."""
    store = DelayStore(redis.Redis(port=redis_server.port), KEYS, options=Options())
    yield store
    store.close()


def send(app: Celery, *numbers: int, queue: str = "orders", **options: object) -> None:
    """Sends tasks with a number."""
    for number in numbers:
        app.send_task("orders.pack", (number,), queue=queue, **options)
