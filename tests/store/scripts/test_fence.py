"""``fence.lua``: fences consumers off whose lease has ended."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import LeaseEnded
from tests.support.store.consuming import ME, OTHER, end_lease, fetch, lives
from tests.support.store.keyspace import contents


def test_a_consumer_whose_lease_has_ended_is_fenced_off(store: DelayStore) -> None:
    """It can neither renew its lease nor take messages, and stays known until all that it held is given back."""
    lives(store)
    end_lease(store)
    for _ in range(2):
        assert store.consumers.fence([ME], "q") == [ME]
    assert contents(store.client)[b"delayq:{q}:consumers"] == [(ME.encode(), 0.0)]
    assert not store.consumers.heartbeat(ME, ["q"])
    store.client.lpush("q", "1")
    with pytest.raises(LeaseEnded):
        fetch(store)


def test_a_consumer_that_lives_is_left_alone(store: DelayStore) -> None:
    """A lease that has not ended, or was renewed meanwhile, goes on; an unknown name stays unknown."""
    lives(store, ME, OTHER)
    end_lease(store, OTHER)
    assert store.consumers.heartbeat(OTHER, ["q"])
    before = contents(store.client)
    assert store.consumers.fence([ME, OTHER, "unknown"], "q") == []
    assert contents(store.client) == before


def test_any_number_at_once(store: DelayStore) -> None:
    """Nobody asks Redis for nothing; hundreds are fenced off page by page."""
    names = [f"host:{number}:00000000" for number in range(450)]
    lives(store, *names)
    for name in names:
        end_lease(store, name)
    assert store.consumers.fence([], "q") == []
    assert store.consumers.fence(names, "q") == names
