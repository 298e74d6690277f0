"""``release.lua``: gives the lease back."""

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents


def test_the_holder_gives_the_lease_back(store: DelayStore) -> None:
    """After the leader's release there is no lease, and another worker gets it at once."""
    store.leases.lead("one")
    assert store.leases.release("one")
    assert contents(store.client) == {}
    assert store.leases.lead("two").leader == "two"


def test_the_standby_gives_its_lease_back(store: DelayStore) -> None:
    """After the standby's release the leader has its lease still, and another worker is the standby at once."""
    store.leases.lead("one")
    store.leases.lead("two")
    assert store.leases.release("two")
    assert contents(store.client) == {b"{delayq}:transfer": b"one"}
    assert store.leases.lead("three").rank == 2


def test_nobody_else_gives_it_back(store: DelayStore) -> None:
    """A release under another name than the holder's changes nothing."""
    store.leases.lead("one")
    before = contents(store.client)
    assert not store.leases.release("two")
    assert contents(store.client) == before
    assert store.client.pttl("{delayq}:transfer") > 0


def test_without_a_lease_there_is_nothing_to_give_back(store: DelayStore) -> None:
    """A second release, or one after the lease has ended, is no error."""
    store.leases.lead("one")
    assert store.leases.release("one")
    assert not store.leases.release("one")
    assert contents(store.client) == {}
