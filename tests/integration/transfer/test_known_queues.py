"""The leader keeps the name of a queue while it has messages or a consumer. So all figures show the queue."""

import json

import pytest
import redis
from kombu import Connection, Exchange, Queue

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.redis import scripts
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.consuming import end_lease, fetch, lives, message
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import Transfer, offer

pytestmark = pytest.mark.both_layouts


@pytest.fixture(autouse=True)
def tidies_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader looks for the names of empty queues whenever it looks at Redis."""
    monkeypatch.setattr("kombu_delayq.transfer.leader.TIDY_S", 0.0)


@pytest.fixture
def store(client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(client, KEYS, options=Options(layout=layout, consumer_ttl=60))


def names_left(store: DelayStore) -> list[str]:
    """Returns the names of the queues that are known once the leader has dropped those of empty ones."""
    store.queues.know("idle")
    until(lambda: "idle" not in store.queues.names(), what="the leader drops the name of an empty queue")
    return store.queues.names()


def test_a_queue_stays_known_until_its_ready_messages_are_gone(
    redis_server: PrivateRedis, store: DelayStore, client: redis.Redis, transfer: Transfer
) -> None:
    """Nobody consumes what came due; once somebody deletes the queue, it is unknown and stays so."""
    transfer(poll_interval=0.05)
    offer(store, "due", 0.1, "mail")
    until(lambda: client.llen("mail") == 1)
    assert names_left(store) == ["mail"]
    with Connection(redis_server.url, transport=TRANSPORT, transport_options={"transfer": False}) as connection:
        queue = Queue("mail", Exchange("mail"), "mail")(connection.default_channel)
        queue.declare()
        queue.delete()
    assert client.llen("mail") == 0
    assert store.queues.names() == []
    assert names_left(store) == []


def test_redis_knows_the_script_before_a_message_is_due(
    store: DelayStore, client: redis.Redis, transfer: Transfer
) -> None:
    """The first call, which is slow, is made while nothing is due: that message is as punctual as all others."""
    client.script_flush()
    offer(store, "later", 3600, "mail")
    transfer(poll_interval=0.05)
    sha = scripts.load("transfer", store.layout).sha
    until(lambda: client.script_exists(sha) == [True])
    assert (client.llen("mail"), store.scan.count("mail")) == (0, 1)


def test_a_queue_stays_known_while_a_consumer_holds_its_messages(
    store: DelayStore, client: redis.Redis, transfer: Transfer
) -> None:
    """So it is known when they come back from a consumer that died, and nobody else consumes them."""
    client.lpush("mail", json.dumps(message(0)))
    store.queues.know("mail")
    lives(store, queues=("mail",))
    assert len(fetch(store, 1, "mail")) == 1
    transfer(poll_interval=0.05, consumer_ttl=1.0)  # only now: it drops names all the time
    assert names_left(store) == ["mail"]
    end_lease(store)
    until(lambda: client.llen("mail") == 1, what="the message is back")
    assert names_left(store) == ["mail"]
    client.delete("mail")
    assert names_left(store) == []
