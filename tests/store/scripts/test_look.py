"""``look.lua``: all that a transfer worker asks once a poll interval, in one command."""

import json

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


def test_the_leader_tells_consumers_which_lists_have_messages(store: DelayStore) -> None:
    """The leader alone tells consumers of lists: those of all priorities of the named queues."""
    store.client.lpush(store.keys.ready("q", [0, 3])[1], "rare")
    store.client.lpush("other", "message")
    with store.client.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(store.keys.lists)
        pubsub.get_message(timeout=10)
        look(store, name="leader")
        store.leases.look("standby", {}, ["q"])
        store.leases.look("leader", {}, ["q", "empty"])
        message = pubsub.get_message(timeout=10)
        assert message is not None
        names, _, there = message["data"].decode().rpartition(" ")
        lists = [name for queue in ("q", "empty") for name in store.keys.ready(queue, [0, 3, 6, 9])]
        assert json.loads(names) == [*lists, "unacked"]
        assert there == "010000000"
        assert pubsub.get_message(timeout=0.1) is None


def test_the_leader_learns_what_is_consumed(store: DelayStore) -> None:
    """It learns the queues of all consumers, whatever somebody else has written there, and a standby learns nothing."""
    store.consumers.heartbeat(ME, ["q", "[x]"], is_new=True)
    store.consumers.heartbeat(OTHER, ["q", "other"], is_new=True)
    store.client.hset(store.keys.consumed(""), "stranger", '{"queues": [nonsense]}')
    assert look(store, name="leader").consumed == {"q", "[x]", "other"}
    assert look(store, name="standby").consumed is None


def test_a_look_renews_the_leases_of_idle_consumers(make_store: MakeStore) -> None:
    """It says which of them it has renewed; one that is fenced off, or unknown, is not."""
    store = make_store(consumer_ttl=600)
    store.consumers.heartbeat(ME, ["q"], is_new=True, ttl_s=100)
    store.consumers.heartbeat(OTHER, ["q"], is_new=True, ttl_s=0.0)
    store.consumers.fence([OTHER], "")
    found = store.leases.look("leader", {}, (), [ME, OTHER, "host:3:cccccccc"]).look
    assert found is not None
    assert found.renewed == {ME}
    lease = store.consumers.find(ME, "")
    assert lease is not None
    assert lease.left_ms > 500_000
    assert [each.name for each in store.consumers.all() if each.left_ms > 0] == [ME]


def test_where_an_acl_forbids_a_key_only_the_lease_is_taken(store: DelayStore) -> None:
    """That is asked once, and again when one layout alone is read, as after a refusal of ``heads``."""
    own = LAYOUT_OF[store.layout].keys(store.keys, "q")[0]
    allowed = {"categories": ["+@all"], "keys": ["{delayq}:*", "unacked", own], "channels": ["*"]}
    store.client.acl_setuser("narrow", enabled=True, nopass=True, **allowed)
    port = store.client.connection_pool.connection_kwargs["port"]
    client = redis.Redis(port=port, username="narrow", password="any")
    narrow = DelayStore(client, store.keys, options=store.options)
    store.client.acl_log_reset()
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
