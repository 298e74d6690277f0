"""Which queues exist, as far as Redis can say."""

from collections.abc import Callable

import pytest
from kombu import Connection, Exchange, Queue

from celery_ext.connection import TRANSPORT
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import lives
from tests.support.store.keyspace import waiting
from tests.support.store.layouts import hash_only

pytestmark = hash_only


def declare(store: DelayStore, exchange: str) -> None:
    """Lets our transport bind the queue to an exchange; stock kombu cannot in a cluster."""
    port = store.client.connection_pool.connection_kwargs["port"]
    with Connection(f"redis://127.0.0.1:{port}/0", transport=TRANSPORT) as connection:
        Queue("q", Exchange(exchange), "key")(connection.default_channel).declare()


MAKE: dict[str, Callable[[DelayStore], object]] = {
    "a delayed message": lambda store: store.delivery.offer("q", waiting("i")),
    "a message": lambda store: store.client.lpush("q", "1"),
    "a message of low priority": lambda store: store.client.lpush("{q}\x06\x169", "1"),
    "a consumer": lambda store: lives(store, queues=("p", "q")),
    "a binding": lambda store: declare(store, "q"),
    "a binding to another exchange": lambda store: declare(store, "shop"),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=list(MAKE))
def test_a_queue_exists_once_it_was_used(store: DelayStore, make: Callable[[DelayStore], object]) -> None:
    """Whatever brings a queue to Redis makes it exist, and no queue of a similar name."""
    assert not store.queues.exists("q")
    make(store)
    assert store.queues.exists("q")
    assert not any(map(store.queues.exists, ("", "Q", "qq", 'q"', "*", "key")))
