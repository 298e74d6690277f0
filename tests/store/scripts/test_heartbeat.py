"""``heartbeat.lua``: renews the lease of a consumer, and the times of the messages that it holds."""

import json

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import LeaseEnded
from tests.support.store.consuming import CONSUMED, CONSUMERS, INDEX, ME, OTHER, end_lease, fetch, lives
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import clock_ms, contents


def test_a_new_consumer_gets_a_lease(make_store: MakeStore) -> None:
    """A new name is noted with the end of its lease by Redis's clock, and with its queues in order of their names."""
    store = make_store(consumer_ttl=7)
    before_ms = clock_ms(store.client)
    assert store.consumers.heartbeat(ME, ["b", "a", 'ü "x"'], group=store.keys.slot_group("q"), is_new=True)
    [(name, ends_ms)] = contents(store.client)[b"delayq:{q}:consumers"]
    assert name == ME.encode()
    assert before_ms + 7000 <= ends_ms <= clock_ms(store.client) + 7000
    about_me = json.loads(contents(store.client)[b"delayq:{q}:consumed"][ME.encode()])
    assert about_me == {"queues": ["a", "b", 'ü "x"'], "subscribed": False, "held": 0, "held_s": None, "places": True}


def test_a_lease_is_renewed(store: DelayStore) -> None:
    """A consumer that lives has its full time again, with the queues of the latest call; others are left alone."""
    lives(store, ME, OTHER)
    now_ms = clock_ms(store.client)
    store.client.zadd(CONSUMERS, {ME: now_ms + 1000, OTHER: now_ms + 1000})
    assert store.consumers.heartbeat(ME, ["z"], group=store.keys.slot_group("q"))
    of_me, of_other = store.client.zmscore(CONSUMERS, [ME, OTHER])
    assert of_me >= now_ms + store.options.consumer_ttl * 1000
    assert of_other == now_ms + 1000
    abouts = {name: json.loads(about)["queues"] for name, about in store.client.hgetall(CONSUMED).items()}
    assert abouts == {ME.encode(): ["z"], OTHER.encode(): ["q"]}


def test_a_lease_may_have_a_length_of_its_own(store: DelayStore) -> None:
    """A lease lasts for as long as the caller says, longer or shorter than ``consumer_ttl``, when new and renewed."""
    now_ms = clock_ms(store.client)
    for ttl_s, is_new in ((120.0, True), (1.5, False)):
        assert store.consumers.heartbeat(ME, ["q"], is_new=is_new, ttl_s=ttl_s)
        ends_ms = store.client.zscore(CONSUMERS, ME)
        assert now_ms + 1000 * ttl_s <= ends_ms <= clock_ms(store.client) + 1000 * ttl_s


def test_a_name_that_is_fenced_off_is_no_new_one(store: DelayStore) -> None:
    """A consumer that lost the reply to its first request, and then its lease, needs another name, too."""
    lives(store)
    end_lease(store)
    store.consumers.fence([ME], "q")
    before = contents(store.client)
    assert not store.consumers.heartbeat(ME, ["q"], is_new=True)
    assert contents(store.client) == before


def test_a_lease_may_be_renewed_late(store: DelayStore) -> None:
    """A consumer whose lease has ended, and whose messages nobody has begun to give back, keeps them and goes on."""
    lives(store)
    store.client.lpush("q", "1", "2")
    [taken] = fetch(store, 1)
    end_lease(store)
    with pytest.raises(LeaseEnded):
        fetch(store, 1, first=2)
    assert store.consumers.heartbeat(ME, ["q"], [taken.tag])
    assert [each.body for each in fetch(store, 1, first=2)] == [b"2"]
    assert store.fetching.ack([taken.tag], "q") == []


def test_messages_in_hand_are_as_new(store: DelayStore) -> None:
    """Stock workers restore messages by their time; those that the consumer holds are taken for delivered just now."""
    lives(store)
    store.client.lpush("q", *map(str, range(450)))
    tags = [taken.tag for taken in fetch(store, 450)]
    store.client.zadd(INDEX, {**dict.fromkeys(tags, 5.0), "another": 5.0})
    before_s = clock_ms(store.client) / 1000
    assert store.consumers.heartbeat(ME, ["q"], tags)
    times = dict(contents(store.client)[b"unacked_index:{q}"])
    assert times.pop(b"another") == 5.0
    assert len(times) == 450
    assert all(before_s <= time <= clock_ms(store.client) / 1000 for time in times.values())


def test_a_message_that_is_held_no_more_is_not_noted_again(store: DelayStore) -> None:
    """A tag that has been acknowledged or reclaimed meanwhile stays away."""
    lives(store)
    assert store.consumers.heartbeat(ME, ["q"], [f"{ME}.1"])
    assert not store.client.exists(INDEX)
