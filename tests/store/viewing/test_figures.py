"""What the store counts for those who look on: queues together, and what has happened to their messages."""

from dataclasses import replace
from math import inf

import pytest
import redis
from redis.exceptions import NoPermissionError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore, figures
from kombu_delayq.store.counts import LATENESS_BOUNDS_S, OPERATIONS, WAIT_BOUNDS_S, Histogram, QueueCounts
from kombu_delayq.store.layouts import LAYOUT_OF
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, KEYS, PAST_MS, waiting


def test_overview_has_the_stats_of_each_queue(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are counted together in the layout of the store, in the order asked for, also over several round trips."""
    monkeypatch.setattr(figures, "QUEUES_A_ROUND_TRIP", 2)
    store = make_store()
    store.delivery.offer("due", waiting("a", PAST_MS), waiting("b", PAST_MS))
    store.delivery.offer("later", waiting("i"))
    store.client.lpush("{ready}\x06\x163", "message")
    names = ["ready", "due", "unknown", "later"]
    found = store.figures.overview(names)
    assert [stats.queue for stats in found] == names
    assert [(stats.delayed, stats.ready, stats.overdue) for stats in found] == [
        (0, 1, 0),
        (2, 0, 2),
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert [stats.next_due_ms for stats in found] == [None, PAST_MS, None, FUTURE_MS]
    assert {stats.error for stats in found} == {""}
    assert store.figures.overview([]) == []


def test_overview_says_why_a_queue_is_not_counted(store: DelayStore) -> None:
    """Somebody else's key in the way of one queue does not keep others from being counted."""
    store.delivery.offer("q", waiting("i"))
    key = LAYOUT_OF[store.layout].keys(store.keys, "broken")[0]
    store.client.set(key, "somebody else's")
    broken, whole = store.figures.overview(["broken", "q"])
    assert f"WRONGTYPE key {key}" in broken.error
    assert (broken.delayed, whole.delayed, whole.error) == (0, 1, "")


def test_a_user_with_the_rights_for_one_form_sees_that_form(own_server: PrivateRedis) -> None:
    """A user that may not read Redisson's keys sees the other layout; one that may read nothing gets Redis's error."""
    admin = own_server.client()
    for user, keys in (("half", "~delayq:* ~{delayq}:* ~q* ~{q}*"), ("none", "~nothing")):
        admin.execute_command("ACL", "SETUSER", user, "on", ">password", "+@all", *keys.split())
    with_form, without = (
        DelayStore(redis.Redis(port=own_server.port, username=user, password="password"), KEYS, options=Options())
        for user in ("half", "none")
    )
    with_form.delivery.offer("q", waiting("i"))
    assert [stats.delayed for stats in with_form.figures.overview(["q"])] == [1]
    assert with_form.figures.due_counts(["q"], [FUTURE_MS, inf]) == {"q": [1]}
    for look in (lambda: without.figures.overview(["q"]), lambda: without.figures.counts(["q"])):
        with pytest.raises(NoPermissionError):
            look()
    with_form.close()
    without.close()


NONE = [Histogram(bounds, (0,) * len(bounds), 0.0, 0) for bounds in (LATENESS_BOUNDS_S, WAIT_BOUNDS_S)]
NOTHING = QueueCounts(0, 0, 0, dict.fromkeys(OPERATIONS, 0), *NONE)


def test_a_queue_of_which_nothing_is_counted_has_zeros(store: DelayStore) -> None:
    """An unknown queue has zeros, and so has one with somebody else's key in the place of its counters."""
    store.client.set(store.keys.counts("wrong"), "somebody else's")
    store.client.hset(store.keys.counts("odd"), "late:0", "somebody else's")
    assert store.figures.counts(["unknown", "wrong", "odd"]) == dict.fromkeys(("unknown", "wrong", "odd"), NOTHING)
    assert store.figures.counts([]) == {}


def test_lateness_is_cumulative(store: DelayStore) -> None:
    """A bucket has all messages that were late by no more than its bound; those beyond the last are in the count."""
    fields = {"late:0": 4, "late:1": 2, "late:3": 1, "late:16": 4, "lost": 1, "late_us": 1_500_000, "drop": 3}
    store.client.hset(store.keys.counts("q"), mapping=fields)
    found = store.figures.counts(["q"])["q"]
    assert found.lateness == Histogram(LATENESS_BOUNDS_S, (4, 6, 6, *[7] * 13), 1.51, 11)
    assert (found.transferred, found.lost, found.redelivered) == (11, 1, 0)
    assert found.operations == {**NOTHING.operations, "drop": 3}


def test_a_queue_that_is_held_back_says_so(make_store: MakeStore) -> None:
    """The figures name the rate and when all have left; once nobody transfers, nothing is held back any more."""
    store = make_store(transfer_rate={"q": [0.005, 2]}, overdue={"old": "drop"}, max_lateness=60)
    store.delivery.offer("q", *(waiting(str(number), PAST_MS) for number in range(12)))
    store.delivery.offer("old", waiting("too late", PAST_MS))
    for queue in ("q", "q", "old"):
        store.delivery.transfer(queue)
    [stats] = store.figures.overview(["q"])
    counts = store.figures.counts(["q", "old"])
    held = counts["q"].holding(stats)
    assert held is not None
    assert (held.per_s, held.burst, stats.overdue) == (0.005, 2, 10)
    assert held.clear_ms(stats.now_ms, stats.overdue) == pytest.approx(stats.now_ms + 2_000_000, abs=200_000)
    assert counts["q"].holding(replace(stats, now_ms=stats.now_ms + 800_000)) is None
    assert counts["old"].too_late == {"dropped": 1, "dead-lettered": 0}
