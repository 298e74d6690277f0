"""Figures of what waits under the names of a plain server, on a server with hash slots, and its removal."""

import json
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
import redis
from kombu import Connection, Queue

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.slots import need_slots
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, waiting

STEPS = (0, 3, 6, 9)


@pytest.fixture(scope="module")
def slots_server() -> Iterator[PrivateRedis]:
    """A Redis Cluster of one node."""
    need_slots()
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture(params=["", "app:"])
def before(slots_server: PrivateRedis, request: pytest.FixtureRequest) -> Iterator[DelayStore]:
    """A publisher of the release before, without and with a prefix, on an empty database."""
    with redis.Redis(port=slots_server.port) as client:
        client.flushall()
        yield DelayStore(client, Keys(request.param))


@pytest.fixture
def store(before: DelayStore) -> DelayStore:
    """This release, on the same database."""
    return DelayStore(before.client, Keys(before.keys.prefix, slots=True))


@pytest.fixture
def both(before: DelayStore, store: DelayStore) -> DelayStore:
    """A store that has messages under both names: one overdue and one to come, and of each priority a ready one."""
    before.delivery.offer("q", waiting("late", PAST_MS), waiting("later", FUTURE_MS + 5))
    store.delivery.offer("q", waiting("new", FUTURE_MS))
    for keys in (before.keys, store.keys):
        for key in keys.ready("q", STEPS):
            before.client.lpush(key, "{}")
    return store


def test_they_are_counted_with_the_others(both: DelayStore) -> None:
    """Numbers of queues, and how many come due when, are those of all messages, before anybody has moved any."""
    [empty, stats] = both.figures.overview(["empty", "q"])
    assert (empty.delayed, empty.ready, empty.next_due_ms) == (0, 0, None)
    assert (stats.delayed, stats.ready, stats.overdue, stats.error) == (3, 8, 1, "")
    assert stats.next_due_ms == PAST_MS
    assert stats.overdue_ms > 0
    counts = both.figures.due_counts(["q", "empty"], [-inf, FUTURE_MS, FUTURE_MS + 1, inf])
    assert counts == {"q": [1, 1, 1], "empty": [0, 0, 0]}
    with both.renamed.moving():
        while both.renamed.move("q"):
            pass
    [after] = both.figures.overview(["q"])
    assert (after.delayed, after.ready, after.overdue) == (3, 8, 1)


def test_what_was_held_and_the_queues_of_letters_are_known(both: DelayStore, before: DelayStore) -> None:
    """Messages in hand count for their queue, or their routing key, and dead letters of both names are listed."""
    for tag, key in (("a", "q"), ("b", "q"), ("c", "other")):
        before.client.hset(before.keys.unacked(""), tag, json.dumps([{"properties": {}}, "", key]))
    before.client.hset(before.keys.unacked(""), "odd", "no note")
    both.consumers.note_queues(["q"])
    both.client.hset(both.keys.unacked(both.keys.share("q")), "d", "x")
    assert both.figures.held() == {"q": 3, "other": 1, "": 1}
    before.client.sadd(before.keys.dead_letters, "failed", "both")
    both.client.sadd(both.keys.dead_letters, "both", "new")
    assert both.figures.dead_letter_queues() == ["both", "failed", "new"]


def test_a_key_in_the_way_is_named(both: DelayStore, before: DelayStore) -> None:
    """Somebody else's key under an old name is an error of its queue alone, and has its name there."""
    old = before.keys.ready("q", STEPS)[1]
    before.client.delete(old)
    before.client.set(old, "x")
    [whole, broken] = both.figures.overview(["whole", "q"])
    assert (whole.error, broken.error.startswith(f"{old}: WRONGTYPE")) == ("", True)


def test_a_user_without_the_right_sees_the_others(both: DelayStore, slots_server: PrivateRedis) -> None:
    """What an ACL forbids is left out, and what has the names of today is counted."""
    prefix = both.keys.prefix
    keys: list[Any] = [f"{prefix}{{delayq}}:*", f"{prefix}delayq:queues", f"{prefix}delayq:{{{prefix}q}}:*"]
    keys += [f"{prefix}q", f"{{{prefix}q}}*", f"{prefix}{{{prefix}q}}*", "redisson*"]
    both.client.acl_setuser("new", True, passwords=["+pw"], keys=keys, categories=["+@all"])
    with redis.Redis(port=slots_server.port, username="new", password="pw") as client:
        found = DelayStore(client, both.keys).figures
        [stats] = found.overview(["q"])
        own = 1 if prefix else 3
        assert (stats.delayed, stats.ready, stats.error) == (own, 5, "")
        assert sum(found.due_counts(["q"], [-inf, inf])["q"]) == own


def test_a_purge_removes_them_too(slots_server: PrivateRedis, both: DelayStore, before: DelayStore) -> None:
    """Nothing of a purged queue comes back when a transfer worker moves what has old names."""
    options = {"global_keyprefix": both.keys.prefix, "hash_slots": True}
    url = slots_server.url.replace("redis://", "delayq://")
    with Connection(url, transport_options=options) as connection:
        assert Queue("q", channel=connection.default_channel).purge() == 3 + 8
    with both.renamed.moving():
        assert both.renamed.move("q") == 0
    [stats] = both.figures.overview(["q"])
    assert (stats.delayed, stats.ready) == (0, 0)
    assert both.renamed.names() == []
