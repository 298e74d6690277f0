"""``stats.lua``: counts a queue's messages."""

import json
from datetime import UTC, datetime

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.counts import QueueStats
from tests.support.messages import task_message
from tests.support.store.keyspace import PAST_MS, clock_ms, contents, waiting


def test_stats_count_delayed_ready_and_overdue(store: DelayStore) -> None:
    """Delayed, overdue and, over all priorities, ready messages are counted, and nothing is changed."""
    store.delivery.offer("q", *(waiting(str(number), PAST_MS + number) for number in range(3)), waiting("later"))
    store.delivery.offer("other", waiting("i"))
    for key in ("q", "q", "{q}\x06\x163", "{q}\x06\x169", "other"):
        store.client.lpush(key, "ready")
    before = contents(store.client)
    before_ms = clock_ms(store.client)
    stats = store.queues.stats("q")
    assert before_ms <= stats.now_ms <= clock_ms(store.client)
    assert stats == QueueStats("q", stats.now_ms, delayed=4, ready=4, overdue=3, next_due_ms=PAST_MS)
    assert stats.overdue_ms == stats.now_ms - PAST_MS
    assert contents(store.client) == before


def test_the_oldest_ready_message_is_that_which_has_waited_longest_of_those_that_are_next(store: DelayStore) -> None:
    """Of each priority the message counts that is consumed next, by its timestamp or its later eta."""
    now_s = int(clock_ms(store.client) / 1000)
    text = 'a "timestamp": 7, "eta": "2001-01-01T00:00:00+00:00" in an argument'
    old, eta = task_message((text,), argsrepr=text), datetime.fromtimestamp(now_s - 60, UTC)
    for key, message in (
        ("q", old | {"properties": {**old["properties"], "timestamp": now_s - 30}}),
        ("q", old | {"properties": {**old["properties"], "timestamp": now_s - 3000}}),  # behind the one before
        ("{q}\x06\x163", task_message(eta=eta) | {"properties": {"timestamp": now_s - 90}}),
        ("{q}\x06\x166", {"body": "of another program"}),
    ):
        store.client.lpush(key, json.dumps(message))
    stats = store.queues.stats("q")
    assert stats.ready_since_ms == (now_s - 60) * 1000
    assert stats.oldest_ready_s == pytest.approx(stats.now_ms / 1000 - now_s + 60)
    assert store.figures.overview(["q"])[0].ready_since_ms == stats.ready_since_ms


@pytest.mark.parametrize("message", [b"ready", b"", b'{"properties": {"timestamp": true}}', b'{"timestamp": 5}'])
def test_a_message_that_does_not_say_since_when_it_is_ready_has_no_age(store: DelayStore, message: bytes) -> None:
    """The age is unknown where no message has a timestamp or an eta, and 0 where none is ready."""
    assert store.queues.stats("q").oldest_ready_s == 0
    store.client.lpush("q", message)
    assert store.queues.stats("q").oldest_ready_s is None
