"""Queues that are not used any more are forgotten while a transfer worker leads."""

from collections.abc import Iterator

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.conditions import stays, until
from tests.support.slots import KEYS
from tests.support.workers.harness import Proj
from tests.support.workers.transfers import Transfer, arrived, offer

pytestmark = pytest.mark.both_layouts

QUEUES = "delayq:queues"


@pytest.fixture
def store(redis_server: PrivateRedis, client: redis.Redis, layout: str) -> Iterator[DelayStore]:
    store = DelayStore(redis.Redis(port=redis_server.port), KEYS, options=Options(layout=layout))
    yield store
    store.close()


def test_unused_queues_are_forgotten_and_known_again(
    store: DelayStore, client: redis.Redis, transfer: Transfer
) -> None:
    """Hundreds of names go, those of queues with messages stay, and the next message makes a queue known again."""
    client.sadd(QUEUES, *(f"pod-{n}" for n in range(350)), b"\xff")
    offer(store, "far", 3000, "held")
    transfer(2, poll_interval=0.1, forget_after=1.0)
    until(lambda: store.queues.names() == ["held"], 60)
    offer(store, "again", 0.5, "pod-1")
    assert "pod-1" in store.queues.names()
    until(lambda: arrived(client, "pod-1") == {"again": 1})
    until(lambda: store.queues.names() == ["held"], 60)


def test_none_is_forgotten_where_it_is_not_wanted(store: DelayStore, client: redis.Redis, transfer: Transfer) -> None:
    """With the option ``forget_after`` None, all names stay."""
    client.sadd(QUEUES, "q")
    transfer(poll_interval=0.1, forget_after=None)
    stays(lambda: store.queues.names() == ["q"] and not client.exists("delayq:used"), 0.5)


@pytest.mark.parametrize("consumes", ["with events", "one by one"])
def test_a_queue_that_is_consumed_is_not_forgotten(
    proj: Proj, store: DelayStore, client: redis.Redis, transfer: Transfer, consumes: str
) -> None:
    """An empty queue keeps its name while somebody consumes it, also without a transfer worker, and not for longer."""
    client.sadd(QUEUES, "q", "other")
    transfer(poll_interval=0.1, forget_after=3.0)
    with proj.connection(transfer=False, forget_after=3.0) as connection:
        queue = connection.SimpleQueue("q", no_ack=True) if consumes == "with events" else None
        channel = connection.default_channel

        def is_consumed_and_known() -> bool:
            if queue is None:
                channel.basic_get("q", no_ack=True)
            else:
                with pytest.raises(queue.Empty):
                    queue.get(timeout=0.2)
            return bool(client.sismember(QUEUES, "q"))

        stays(is_consumed_and_known, 6)
        until(lambda: not client.sismember(QUEUES, "other"))
        assert client.sismember(QUEUES, "q")
    until(lambda: not client.sismember(QUEUES, "q"), 30)
