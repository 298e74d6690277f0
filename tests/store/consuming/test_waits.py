"""How long messages waited in a queue, as the consumer counts it that takes them."""

from datetime import UTC, datetime
from time import time

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from kombu_delayq.store.counts import WAIT_BOUNDS_S, Histogram, QueueCounts, QueueWaits
from tests.support.messages import changed_message, task_message

COUNTS = "delayq:{q}:counts"
WEEK_S = 7 * 86_400


@pytest.fixture
def layout() -> str:
    """Consuming does not regard the layout."""
    return "hash"


def counts_of(store: DelayStore) -> QueueCounts:
    return store.figures.counts(["q"])["q"]


def test_each_message_counts_in_the_bucket_of_its_wait(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message waits from its timestamp, or its later eta; early ones do not count, and others are unknown."""
    monkeypatch.setattr("kombu_delayq.store.counts.time", lambda: 1_000_000.5)
    waits = QueueWaits()
    waits.begin("q")
    for waited_s in (0, 1, 2, 3, 7000, 50_000):
        waits.note("q", changed_message(properties={"timestamp": 1_000_000 - waited_s}))
    eta = datetime.fromtimestamp(1_000_000 - 100, UTC).isoformat()
    waits.note("q", changed_message(headers={"eta": eta}, properties={"timestamp": 5}))
    waits.note("q", changed_message(headers={"eta": "2100-01-01T00:00:00+00:00"}))
    for nonsense in ("yesterday", float("inf"), float("nan"), -(10**30), 10**30):
        waits.note("q", changed_message(properties={"timestamp": nonsense}))
    waits.note("other", changed_message(properties={"timestamp": 5}))  # a queue that is not counted, such as of replies
    waits.flush(store.figures.count_minute)
    each = (0, 1, 2, 3, 7000, 50_000, 100)
    wanted = tuple(sum(waited_s <= bound for waited_s in each) for bound in WAIT_BOUNDS_S)
    assert counts_of(store).waits == Histogram(WAIT_BOUNDS_S, wanted, sum(each), 7)
    assert counts_of(store).waits_unknown == 5
    assert not store.client.keys("*other*")


def test_what_was_sent_is_not_sent_again(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush sends what has come since the last one that Redis has had, and nothing where nothing has."""
    waits = QueueWaits()
    waits.begin("q")
    message = task_message()
    message["properties"]["timestamp"] = int(time())
    for count in range(1, 4):
        waits.note("q", message)
        with monkeypatch.context() as away:
            away.setattr(store.figures, "count_minute", _fails)
            with pytest.raises(RedisConnectionError):
                waits.flush(store.figures.count_minute)
        waits.flush(store.figures.count_minute)
        waits.flush(store.figures.count_minute)
        assert counts_of(store).waits.count == count


def test_a_queue_that_redis_does_not_count_is_the_only_one_to_be_sent_again(store: DelayStore) -> None:
    """Where somebody else's key is in the place of a queue's counters, those of other queues do not grow each time."""
    waits = QueueWaits()
    message = changed_message(properties={"timestamp": int(time())})
    for queue in ("bad", "q"):
        waits.begin(queue)
        waits.note(queue, message)
    store.client.set("delayq:{bad}:counts", "somebody else's")
    for _ in range(3):
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            waits.flush(store.figures.count_minute)
    assert counts_of(store).waits.count == 1
    store.client.delete("delayq:{bad}:counts")
    waits.flush(store.figures.count_minute)
    assert store.figures.counts(["bad"])["bad"].waits.count == 1


def test_counters_without_delayed_messages_end_after_a_week(store: DelayStore) -> None:
    """The counters of a queue that nobody knows end, as do those of a transfer."""
    store.figures.count_minute({"q": {"waited:0": 1}})
    assert WEEK_S - 10 <= store.client.ttl(COUNTS) <= WEEK_S


def _fails(*_: object) -> None:
    raise RedisConnectionError("away")
