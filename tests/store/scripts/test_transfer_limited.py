"""``transfer_limited.lua``: moves due messages within the limits of their queue."""

from math import floor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_ext.waiting import by_id
from kombu_delayq.options import QueueLimits
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import Transferred
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import PAST_MS, clock_ms, contents, lose_body, popped, waiting

SLOW = QueueLimits("run", None, 0.001, 3)
DROP = QueueLimits("drop", 60_000, None, 1)
BURY = QueueLimits("dead-letter", 60_000, None, 1)


def lists(store: DelayStore) -> dict[int, list[str]]:
    """Returns what was pushed to each list of the queue, the oldest first, by the number of the list."""
    ready = store.keys.ready("q", (0, 3, 6, 9))
    return {
        at: [body.decode().removeprefix("body of ") for body in reversed(store.client.lrange(key, 0, -1))]
        for at, key in enumerate(ready)
        if store.client.exists(key)
    }


def refill(store: DelayStore, tokens: float = 3, limits: QueueLimits = SLOW) -> None:
    """Puts tokens into the queue's bucket."""
    full = clock_ms(store.client) + (limits.burst - tokens) * 1000 / (limits.rate or 1)
    store.client.hset(store.keys.bucket("q"), "full", repr(full))


def drained(store: DelayStore, limits: QueueLimits = SLOW, most: int = 100) -> list[Transferred]:
    """Transfers until nothing is due, with new tokens in between."""
    calls = []
    for _ in range(most):
        calls.append(store.delivery.transfer_limited("q", limits))
        if calls[-1].next_due_ms is None:
            return calls
        refill(store, limits=limits)
    raise AssertionError("the queue is not empty in the end")


def test_without_a_limit_reached_it_is_a_transfer(store: DelayStore) -> None:
    """Messages within the rate, and not too late, move as ever and are counted as ever."""
    now_ms = floor(clock_ms(store.client))  # Redisson's layout keeps whole ms, and rounds up
    store.delivery.offer("q", waiting("late", now_ms - 12_000), waiting("now", now_ms), waiting("later"))
    done = store.delivery.transfer_limited("q", QueueLimits("drop", 60_000, 100, 10))
    assert (done.moved, done.lost, done.dropped, done.held_back, done.too_late) == (2, 0, 0, False, ())
    assert done.next_due_ms == store.delivery.heads(["q"]).due_ms.popitem()[1]
    assert popped(store.client, "q") == [b"body of late", b"body of now"]
    counts = store.figures.counts(["q"])["q"]
    of_10_to_30_s = counts.lateness.buckets[11] - counts.lateness.buckets[10]
    assert (counts.transferred, of_10_to_30_s) == (2, 1)


def test_no_more_leave_than_there_are_tokens(store: DelayStore) -> None:
    """The burst leaves at once, then nothing until the rate has brought a token; the call says when that is."""
    store.delivery.offer("q", *(waiting(str(number), PAST_MS + number) for number in range(5)))
    first, second = (store.delivery.transfer_limited("q", SLOW) for _ in range(2))
    assert [(done.moved, done.held_back) for done in (first, second)] == [(3, True), (0, True)]
    assert popped(store.client, "q") == [b"body of 0", b"body of 1", b"body of 2"]
    assert second.next_due_ms is not None
    assert not second.more
    assert second.next_due_ms - first.now_ms == pytest.approx(1_000_000, abs=1)
    assert store.client.pttl(store.keys.bucket("q")) > 1_000_000
    assert drained(store)[-1].next_due_ms is None
    assert popped(store.client, "q") == [b"body of 3", b"body of 4"]


def test_a_call_that_drops_ends_when_it_takes_long(make_store: MakeStore) -> None:
    """Of the most messages that the option allows, a call leaves some to the next, so that others have their turn."""
    store = make_store(transfer_batch=5000, transfer_batch_bytes=100_000_000)
    store.delivery.offer("q", *(waiting(str(number), PAST_MS) for number in range(5001)))
    assert 16 <= store.delivery.transfer_limited("q", DROP).dropped < 5000 // LAYOUT_OF[store.layout].batch_share
    drained(store, DROP, 5000)
    assert store.figures.counts(["q"])["q"].too_late["dropped"] == 5001


def test_tokens_come_back_with_time(store: DelayStore) -> None:
    """Tokens come back at the rate, up to the burst; both layouts take them from one bucket."""
    limits = QueueLimits("run", None, 0.002, 4)
    store.delivery.offer("q", *(waiting(str(number), PAST_MS) for number in range(20)))
    assert store.delivery.transfer_limited("q", limits).moved == 4
    bucket = store.keys.bucket("q")
    store.client.hset(bucket, "full", repr(float(store.client.hget(bucket, "full")) - 1_600_000))
    assert store.delivery.transfer_limited("q", limits).moved == 3
    store.client.hset(bucket, "full", repr(PAST_MS))
    assert store.delivery.transfer_limited("q", limits).moved == 4
    other = "redisson" if store.layout == "hash" else "hash"
    assert store.delivery.transfer_limited("q", limits, other).moved == 0


def test_a_slower_rate_forgets_no_token(store: DelayStore) -> None:
    """A bucket that a lower rate has left far from full gives tokens at the new rate from now on."""
    store.delivery.offer("q", *(waiting(str(number), PAST_MS) for number in range(20)))
    store.delivery.transfer_limited("q", SLOW)
    done = store.delivery.transfer_limited("q", QueueLimits("run", None, 10, 1))
    assert done.next_due_ms == pytest.approx(done.now_ms + 100, abs=1)


def test_too_late_messages_are_dropped(store: DelayStore) -> None:
    """Messages that are later than the limit leave without a trace but the counter; the others run in a later call."""
    now_ms = clock_ms(store.client)
    store.delivery.offer("q", *(waiting(f"old {number}", PAST_MS + number) for number in range(3)))
    store.delivery.offer("q", waiting("due", now_ms - 30_000), waiting("later"))
    first, second = (store.delivery.transfer_limited("q", DROP) for _ in range(2))
    assert (first.dropped, first.moved, first.more, first.too_late) == (3, 0, True, ())
    assert (second.dropped, second.moved, second.more) == (0, 1, False)
    assert popped(store.client, "q") == [b"body of due"]
    assert store.client.hget(store.keys.counts("q"), "overdue_dropped") == b"3"
    assert [message.id for message in by_id.browse(store, "q")] == ["later"]


def test_dropping_has_a_bound(make_store: MakeStore) -> None:
    """A call drops at most a batch, and a dropped duplicate leaves nothing behind."""
    share = 2 if make_store().layout == "redisson" else 1
    store = make_store(transfer_batch=10 * share)
    store.delivery.offer("q", *(waiting(str(number), PAST_MS + number) for number in range(24)))
    store.delivery.offer("q", waiting("0", PAST_MS + 50, "a duplicate"))
    assert [store.delivery.transfer_limited("q", DROP).dropped for _ in range(3)] == [10, 10, 5]
    assert all(not store.client.exists(key) for key in LAYOUT_OF[store.layout].keys(store.keys, "q")[:2])


def test_messages_to_be_buried_are_returned_and_stay(store: DelayStore) -> None:
    """Messages that are to become dead letters are returned, a lost one without a body, and nothing changes."""
    store.delivery.offer(
        "q", waiting("a", PAST_MS, priority=9), waiting("b", PAST_MS + 1), waiting("lost", PAST_MS + 2)
    )
    store.delivery.offer("q", waiting("due", clock_ms(store.client) - 30_000))
    lose_body(store, "lost")
    before = contents(store.client)
    done = store.delivery.transfer_limited("q", BURY)
    assert (done.moved, done.dropped, done.more) == (0, 0, True)
    assert [(late.priority, late.body) for late in done.too_late] == [(9, b"body of a"), (0, b"body of b"), (0, None)]
    assert contents(store.client) == before


#: Due time, priority, and whether the message is cancelled once others have left.
HELD = st.tuples(st.integers(0, 5), st.sampled_from([0, 0, 2, 3, 5, 6, 9]), st.booleans())


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(messages=st.lists(HELD, max_size=25), tokens=st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_any_backlog_leaves_in_order(
    store: DelayStore, messages: list[tuple[int, int, bool]], tokens: list[int]
) -> None:
    """Whatever is held back, each call moves the next ones by due time and place, and no more than its tokens."""
    store.client.flushall()
    steps = store.delivery._client.list_of_priority
    waits = {str(n): (due, n) for n, (due, _, _) in enumerate(messages)}
    for n, (due, priority, _) in enumerate(messages):
        store.delivery.offer("q", waiting(str(n), PAST_MS + due, priority=priority))
    left: dict[int, list[str]] = {}
    for call, count in enumerate(tokens):
        refill(store, count)
        expected = sorted(waits, key=waits.__getitem__)[:count]
        assert store.delivery.transfer_limited("q", SLOW).moved == len(expected)
        for name in expected:
            del waits[name]
            left.setdefault(steps[messages[int(name)][1]], []).append(name)
        assert lists(store) == left
        gone = [name for name in waits if messages[int(name)][2]] if call == 1 else []
        for name in gone:
            assert store.lookup.cancel(["q"], [name])
            del waits[name]
    drained(store)
    for name in sorted(waits, key=waits.__getitem__):
        left.setdefault(steps[messages[int(name)][1]], []).append(name)
    assert lists(store) == left
