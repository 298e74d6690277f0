"""``drop_parked.lua``: removes all messages from the sub-queues of a queue."""

import pytest

from celery_ext.limits import LimitStore
from kombu_delayq.store import DelayStore
from tests.support.store.consuming import fetch, lives
from tests.support.store.keyspace import contents, refuses_a_key_of_the_wrong_type
from tests.support.store.limited import asked, declare, keyed, numbers, push

A, B = "account:a", "account:b"


def prepare(store: DelayStore) -> list[str]:
    """Lets messages of two keys wait behind one in hand. Returns its tag."""
    lives(store)
    declare(store, account={"running": 1})
    push(store, *(keyed(A, number) for number in range(3)), keyed(B, "b"))
    tags = [each.tag for each in fetch(store, 1)]
    push(store, keyed("", "-"))
    assert asked(store, 0)[0] == []
    return tags


def test_all_that_waits_is_gone(store: DelayStore) -> None:
    """Tasks that run keep their places, so that the next message of their key waits for them."""
    tags = prepare(store)
    assert store.part(LimitStore).drop_parked("q") == 4
    assert numbers(store) == {A: (0, 1)}
    push(store, keyed(A, "next"))
    asked(store, 0)
    store.part(LimitStore).refresh("q")
    assert asked(store, first=2)[0] == []
    store.fetching.ack(tags, "q")
    assert asked(store, first=2)[0] == ["next"]


def test_it_is_part_of_a_purge(store: DelayStore) -> None:
    """A purge with what is ready removes and counts what waits in its sub-queues; one of delayed messages leaves it."""
    tags = prepare(store)
    before = numbers(store)
    assert store.queues.purge("q") == 0
    assert numbers(store) == before
    assert store.queues.purge("q", with_ready=True) == sum(waits for waits, _ in before.values())
    assert numbers(store) == {A: (0, 1)}
    store.fetching.ack(tags, "q")
    assert numbers(store) == {}


@pytest.mark.parametrize("key", ["parked", "parked_keys"])
def test_a_key_of_the_wrong_type_is_named(store: DelayStore, key: str) -> None:
    """The error names it, and nothing changes."""
    prepare(store)
    refuses_a_key_of_the_wrong_type(
        store, getattr(store.keys, key)("q"), lambda: store.part(LimitStore).drop_parked("q")
    )


def test_a_queue_without_keys_is_left_alone(store: DelayStore) -> None:
    """Nothing is written for a queue in which nothing is sorted."""
    assert store.part(LimitStore).drop_parked("q") == 0
    assert contents(store.client) == {}
