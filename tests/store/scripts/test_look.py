"""``look.lua``: all that a transfer worker asks once a poll interval, in one command."""

import pytest
import redis

from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore, Look
from kombu_delayq.store.layouts import LAYOUT_OF
from tests.support.store.cost import round_trips
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, waiting

ME, OTHER = "host:1:aaaaaaaa", "host:2:bbbbbbbb"

pytestmark = pytest.mark.plain_server


def look(store: DelayStore, *queues: str, name: str = "one") -> Look:
    """Returns what a transfer worker sees."""
    found = store.leases.look(name, store.delivery.dues(queues)).look
    assert found is not None
    return found


def test_a_look_sees_the_lease_and_the_heads(store: DelayStore) -> None:
    """It gives the lease as ``lead`` does, and the heads as ``heads`` does, in every layout; one command."""
    for layout, due_ms in zip(LAYOUTS, (FUTURE_MS, PAST_MS), strict=True):
        store.client.zadd(LAYOUT_OF[layout].keys(store.keys, "q")[0], {"x": due_ms})
    store.queues.know("known")
    found = store.leases.look("one", store.delivery.dues(["q", "empty"]))
    assert (found.leader, found.rank, found.queues) == ("one", 1, ["known"])
    assert found.look is not None
    assert found.look.heads.due_ms == store.delivery.heads(["q", "empty"]).due_ms
    assert found.look.queues == {"q", "empty"}
    assert round_trips(store, lambda: look(store, "q", "empty")) == 1


def test_a_key_in_the_way_is_due(store: DelayStore) -> None:
    """So the transfer that follows names it; the other queues are seen."""
    store.client.lpush(LAYOUT_OF[store.layout].keys(store.keys, "q")[0], "in the way")
    store.delivery.offer("sound", waiting("i"))
    assert {delayed.queue: ms for delayed, ms in look(store, "q", "sound").heads.due_ms.items()} == {
        "q": 0.0,
        "sound": FUTURE_MS,
    }


def test_one_that_waits_changes_nothing(make_store: MakeStore) -> None:
    """A worker for which no lease is left sees all the same."""
    store = make_store(lease_ttl=3600)
    for name in ("one", "two", "three"):
        store.leases.lead(name)
    before = contents(store.client)
    assert not look(store, "q", name="four").is_watched
    assert contents(store.client) == before


def test_a_consumer_whose_lease_has_ended_is_seen(store: DelayStore) -> None:
    """Also one that is being reclaimed; nobody who lives counts."""
    assert not look(store).has_ended
    store.consumers.heartbeat(ME, ["q"], is_new=True)
    assert not look(store).has_ended
    store.consumers.heartbeat(OTHER, ["q"], is_new=True, ttl_s=0.0)
    assert look(store).has_ended
    store.consumers.fence([OTHER], "")
    assert look(store).has_ended


def test_where_an_acl_forbids_a_key_only_the_lease_is_taken(store: DelayStore) -> None:
    """That is asked once, and again when one layout alone is read, as after a refusal of ``heads``."""
    own = LAYOUT_OF[store.layout].keys(store.keys, "q")[0]
    allowed = {"categories": ["+@all"], "keys": ["{delayq}:*", "unacked", own], "channels": ["*"]}
    store.client.acl_setuser("narrow", enabled=True, nopass=True, **allowed)
    port = store.client.connection_pool.connection_kwargs["port"]
    client = redis.Redis(port=port, username="narrow", password="any")
    narrow = DelayStore(client, store.keys, options=store.options)
    try:
        for _ in range(2):
            found = narrow.leases.look("one", narrow.delivery.dues(["q"]))
            assert (found.rank, found.look) == (1, None)
        assert [entry["count"] for entry in store.client.acl_log()] == [1]
        narrow.delivery.heads(["q"])
        assert look(narrow, "q").heads.due_ms == {}
    finally:
        narrow.close()
        store.client.acl_deluser("narrow")
