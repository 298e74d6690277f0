"""What a transfer worker that waits asks of the store."""

from collections.abc import Callable

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from tests.support.store.cost import calls, round_trips
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, contents, waiting

KNOWN, OTHERS = ["known"], ["own", "known"]


@pytest.fixture
def quiet(make_store: MakeStore) -> DelayStore:
    """A store where others hold all leases and the next message of a known queue is due much later."""
    store = make_store(lease_ttl=3600)
    store.delivery.offer("known", waiting("i"))
    for name in ("leader", "standby", "second"):
        store.leases.lead(name)
    return store


def test_nothing_is_to_be_done(quiet: DelayStore) -> None:
    """All is quiet while the leases are held, no name is new and nothing is due; asking changes nothing."""
    before = contents(quiet.client)
    assert quiet.leases.all_quiet(KNOWN, OTHERS)
    assert contents(quiet.client) == before


@pytest.mark.parametrize(
    "stir",
    [
        lambda store: store.leases.release("leader"),
        lambda store: store.leases.release("standby"),
        lambda store: store.leases.release("second"),
        lambda store: store.delivery.offer("known", waiting("j", PAST_MS)),
        lambda store: store.queues.know("new"),
        lambda store: store.client.srem(store.keys.queues, "known"),
        lambda store: store.client.zadd(LAYOUT_OF[store.layout].keys(store.keys, "own")[0], {"x": 9e15}),
        lambda store: store.client.lpush(LAYOUT_OF[store.layout].keys(store.keys, "own")[0], "in the way"),
        lambda store: store.client.rename(store.keys.queues, store.keys.standby),
    ],
)
def test_something_is_to_be_done(quiet: DelayStore, stir: Callable[[DelayStore], object]) -> None:
    """It is not when a lease is free, a name new or gone, a message due, a queue unknown, or a key of another type."""
    stir(quiet)
    assert not quiet.leases.all_quiet(KNOWN, OTHERS)


def test_asking_costs_one_round_trip_and_no_script(quiet: DelayStore) -> None:
    """Whatever the number of queues, Redis is asked once, by plain commands."""
    quiet.client.config_resetstat()
    names = [f"q{n}" for n in range(10)]
    assert round_trips(quiet, lambda: quiet.leases.all_quiet(KNOWN, names)) == 1
    assert not {"evalsha", "eval"} & calls(quiet).keys()
