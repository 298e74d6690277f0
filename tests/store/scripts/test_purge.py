"""``purge.lua``: removes a queue's delayed messages."""

import pytest

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    DUPLICATES,
    ORDER,
    PAST_MS,
    contents,
    refuses_a_key_of_the_wrong_type,
    waiting,
)


def test_purge_removes_all_delayed_messages_and_nothing_else(store: DelayStore) -> None:
    """A purge counts and removes the delayed messages of one queue, due or not, and leaves the ready ones."""
    store.delivery.offer("other", waiting("i"))
    store.client.lpush("q", "ready")
    before = contents(store.client)
    store.delivery.offer(
        "q", waiting("i", PAST_MS), *(waiting(str(number)) for number in range(19)), waiting("i", body="two")
    )
    assert store.queues.purge("q") == 21
    assert contents(store.client) == before


def test_purge_of_an_empty_queue_removes_nothing(store: DelayStore) -> None:
    """A queue without delayed messages is purged of none."""
    store.client.set("something", "else")
    before = contents(store.client)
    assert store.queues.purge("q") == 0
    assert contents(store.client) == before


def test_a_purged_queue_takes_messages_again(store: DelayStore) -> None:
    """After a purge an id is free, and the next message is the queue's first."""
    store.delivery.offer("q", waiting("i"))
    store.queues.purge("q")
    assert store.delivery.offer("q", waiting("i")) == ("first", 1, 0, 0)
    assert store.queues.names() == ["q"]


@pytest.mark.parametrize("key", [DUE, BODIES, ORDER, DUPLICATES])
def test_purge_leaves_a_key_of_the_wrong_type_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and no key is removed."""
    store.delivery.offer("q", waiting("i"))
    refuses_a_key_of_the_wrong_type(store, key, lambda: store.queues.purge("q"))
