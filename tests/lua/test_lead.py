"""``lead.lua``: takes or renews the lease of the leading transfer worker."""

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.results import Lease
from kombu_delayq.store import DelayStore
from tests.lua.conftest import MakeStore
from tests.lua.keyspace import contents, waiting
from tests.waiting import until


def test_the_first_to_ask_leads(store: DelayStore) -> None:
    """Without a lease whoever asks gets it, with its time to live, and the queues in order of their names."""
    for queue in ("b", "a", "ü {x} y"):
        store.offer(queue, waiting("i"))
    assert store.lead("one") == Lease("one", ["a", "b", "ü {x} y"])
    assert store.client.get("delayq:transfer") == b"one"
    assert 0 < store.client.pttl("delayq:transfer") <= store.options.lease_ttl * 1000


def test_the_others_learn_who_leads(store: DelayStore) -> None:
    """While a lease is held, nobody else gets it, nor changes how long it lasts."""
    store.lead("one")
    store.client.pexpire("delayq:transfer", 2000)
    before = contents(store.client)
    assert store.lead("two") == Lease("one", [])
    assert contents(store.client) == before
    assert store.client.pttl("delayq:transfer") <= 2000


def test_the_leader_renews_its_lease(store: DelayStore) -> None:
    """The holder that asks again has its full time again."""
    store.lead("one")
    store.client.pexpire("delayq:transfer", 500)
    assert store.lead("one").leader == "one"
    assert store.client.pttl("delayq:transfer") > 500


def test_a_lease_ends_by_itself(make_store: MakeStore) -> None:
    """The lease of a leader that is silent ends after its time, and another worker leads."""
    store = make_store(lease_ttl=1)
    store.lead("one")
    assert store.lead("two").leader == "one"
    until(lambda: store.lead("two").leader == "two")


@pytest.mark.parametrize("key", ["delayq:transfer", "delayq:queues"])
def test_a_key_of_the_wrong_type_is_named_and_left_alone(store: DelayStore, key: str) -> None:
    """Where somebody else's key is in the way, the error names it and no lease is given."""
    store.client.rpush(key, "somebody else's")
    before = contents(store.client)
    with pytest.raises(ResponseError, match="WRONGTYPE key " + key):
        store.lead("one")
    assert contents(store.client) == before
