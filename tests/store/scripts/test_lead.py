"""``lead.lua``: takes or renews the lease of the leading transfer worker, or of a standby."""

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.leases import Lease
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import contents, waiting

LEASE, STANDBY, SECOND = LEASES = "{delayq}:transfer", "{delayq}:standby", "{delayq}:standby:2"
#: What is left of a lease, in ms: less than a new one has, and more than any test takes.
LEFT_MS = 1_000_000


@pytest.fixture
def store(make_store: MakeStore) -> DelayStore:
    """A store whose leases end long after the test."""
    return make_store(lease_ttl=3600)


def test_the_first_to_ask_leads(store: DelayStore) -> None:
    """Without a lease whoever asks gets it, with its time to live, and the queues in order of their names."""
    for queue in ("b", "a", "ü {x} y"):
        store.delivery.offer(queue, waiting("i"))
    assert store.leases.lead("one") == Lease("one", ["a", "b", "ü {x} y"], 1)
    assert store.client.get(LEASE) == b"one"
    assert 0 < store.client.pttl(LEASE) <= store.options.lease_ttl * 1000
    assert not store.client.exists(STANDBY, SECOND)


def test_the_next_are_the_standbys(store: DelayStore) -> None:
    """Who asks next holds a lease of its own, which changes nothing about those before."""
    store.leases.lead("one")
    for rank, name in enumerate(("two", "three"), 2):
        for key in LEASES[: rank - 1]:
            store.client.pexpire(key, LEFT_MS)
        assert store.leases.lead(name) == Lease("one", [], rank)
        assert store.client.mget(LEASES[:rank]) == [b"one", b"two", b"three"][:rank]
        assert all(store.client.pttl(key) <= LEFT_MS for key in LEASES[: rank - 1])
        assert LEFT_MS < store.client.pttl(LEASES[rank - 1]) <= store.options.lease_ttl * 1000


def test_the_others_learn_who_leads(store: DelayStore) -> None:
    """While all leases are held, nobody else gets one, nor changes how long they last; it learns the queues too."""
    store.delivery.offer("q", waiting("i"))
    for name in ("one", "two", "three"):
        store.leases.lead(name)
    for key in LEASES:
        store.client.pexpire(key, LEFT_MS)
    before = contents(store.client)
    assert store.leases.lead("four") == Lease("one", ["q"], 0)
    assert contents(store.client) == before
    assert max(map(store.client.pttl, LEASES)) <= LEFT_MS


@pytest.mark.parametrize(("name", "rank", "key"), [("one", 1, LEASE), ("two", 2, STANDBY), ("three", 3, SECOND)])
def test_a_holder_renews_its_own_lease(store: DelayStore, name: str, rank: int, key: str) -> None:
    """The leader, or a standby, that asks again has its full time again, and the others not."""
    for each in ("one", "two", "three"):
        store.leases.lead(each)
    for each in LEASES:
        store.client.pexpire(each, LEFT_MS)
    assert store.leases.lead(name) == Lease("one", [], rank)
    assert [each for each in LEASES if store.client.pttl(each) > LEFT_MS] == [key]


def test_a_standby_that_leads_makes_room_for_the_next(store: DelayStore) -> None:
    """When the leader is gone, its standby leads and is standby no more; who asks next is."""
    store.leases.lead("one")
    store.leases.lead("two")
    store.client.delete(LEASE)
    assert store.leases.lead("two") == Lease("two", [], 1)
    assert not store.client.exists(STANDBY)
    assert store.leases.lead("three") == Lease("two", [], 2)


def test_whoever_asks_first_leads_when_the_leader_is_gone(store: DelayStore) -> None:
    """Another one than the standby leads if it asks before; the standby stays what it is."""
    store.leases.lead("one")
    store.leases.lead("two")
    store.client.delete(LEASE)
    assert store.leases.lead("three") == Lease("three", [], 1)
    assert store.leases.lead("two") == Lease("three", [], 2)


def test_a_lease_ends_by_itself(make_store: MakeStore) -> None:
    """The lease of a leader that is silent ends after its time, and another worker leads."""
    make_store(lease_ttl=3600).leases.lead("one")
    store = make_store(lease_ttl=0.2)
    assert store.leases.lead("two").leader == "one"
    assert store.leases.lead("one").leader == "one"  # for so short a time from now on
    until(lambda: store.leases.lead("two").leader == "two")
