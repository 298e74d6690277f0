"""``count_minute.lua``, and the minutes that a transfer counts: what has happened to a queue minute by minute."""

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_ext.serve.minutes import MinuteFigures, Minutes, total
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.redis.operations import Call
from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.keys import MINUTES_KEPT_H
from kombu_delayq.store.types import DelayedQueue
from tests.support.store.keyspace import waiting


def latest(store: DelayStore, queue: str = "q") -> Minutes:
    """Returns the latest two minutes, so that a minute that ends meanwhile changes nothing, as sums."""
    found = store.part(MinuteFigures).read([queue], store.now_ms(), 2)[queue]
    return Minutes(*([max(block) if name == "late_ms" else sum(block)] for name, block in found._asdict().items()))


def test_a_transfer_counts_what_it_delivers_and_how_late(store: DelayStore) -> None:
    """The minute has the number of all transfers in it, and the largest lateness."""
    now_ms = store.now_ms()
    store.delivery.offer("q", waiting("a", now_ms - 90_000), waiting("b", now_ms - 1000))
    store.delivery.transfer("q")
    store.delivery.offer("q", waiting("c", now_ms - 30_000))
    store.delivery.transfer("q")
    found = latest(store)
    assert (found.delivered, found.retried, found.failed, found.dead) == ([3], [0], [0], [0])
    assert 90_000 <= found.late_ms[0] < 150_000


def test_outcomes_are_counted_apart(store: DelayStore) -> None:
    """What workers report, and dead letters, have numbers of their own, in the queue for which they are counted."""
    store.figures.count_minute({"q": {"retried": 2, "failed": 1}, "r": {"failed": 70_000}})
    store.figures.count_minute({"q": {"retried": 1}})
    store.queues.note_dead_letters("dead", 4)
    store.figures.count_minute({})
    assert latest(store) == ([0], [0], [3], [1], [0])
    assert (latest(store, "r").failed, latest(store, "dead").dead) == ([70_000], [4])
    counts = store.figures.counts(["q", "dead"])
    assert counts["q"].failures == {"retried": 3, "failed": 1, "dead-lettered": 0, "not known": 0}
    assert counts["dead"].failures == {"retried": 0, "failed": 0, "dead-lettered": 4, "not known": 0}
    every = total(list(store.part(MinuteFigures).read(["q", "r", "none"], store.now_ms()).values()), 60)
    assert (sum(every.failed), len(every.failed), total([], 3).failed) == (70_001, 60, [0, 0, 0])


def test_what_a_node_that_is_away_misses_is_reported_again(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one node of a cluster is away, the outcomes of the other queues are counted once."""
    consumer, run_each = Consumer(list), StoreClient.run_each

    def run(client: StoreClient, calls: list[Call[Any]]) -> Any:
        return [RedisConnectionError("away"), *run_each(client, calls[1:])[0]], []

    consumer.count("away", "failed")
    consumer.count("q", "failed")
    with monkeypatch.context() as patch:
        patch.setattr(StoreClient, "run_each", run)
        for _ in range(2):
            with pytest.raises(RedisConnectionError, match="away"):
                consumer.report(store)
    assert latest(store).failed == [1]
    consumer.report(store)
    consumer.report(store)
    assert (latest(store).failed, latest(store, "away").failed) == ([1], [1])


@pytest.mark.parametrize("ago", [0, 1, 59, 60, 61, 1439])
def test_each_minute_of_a_day_is_found(store: DelayStore, ago: int) -> None:
    """A minute has its place in the hour to which it belongs, so many minutes before the present one."""
    now_ms = 1_800_000_000_000.0 + 17 * 60_000
    minute = int(now_ms // 60_000) - ago
    key = store.keys.minutes("q", minute // 60)
    store.client.execute_command("BITFIELD", key, "SET", "u32", f"#{3 * 60 + minute % 60}", 5)
    found = store.part(MinuteFigures).read(["q"], now_ms, 1440)["q"]
    assert [at for at, count in enumerate(found.failed) if count] == [1439 - ago]
    assert sum(map(sum, found)) == 5


def test_a_minute_is_small_and_ends(store: DelayStore) -> None:
    """A queue that only delivers has a string of 240 bytes an hour at most, which expires after a day."""
    store.delivery.offer("q", waiting("a", store.now_ms() - 1))
    store.delivery.transfer("q")
    [key] = store.client.keys("*counts:*")
    assert store.client.strlen(key) <= (480 if any(latest(store).late_ms) else 240)  # where the machine was slow
    assert (MINUTES_KEPT_H - 1) * 3600 < store.client.ttl(key) <= MINUTES_KEPT_H * 3600


def test_nothing_that_keeps_from_counting_ends_an_operation(store: DelayStore) -> None:
    """Another key in the place of the minutes counts nothing, and messages are delivered all the same."""
    hour = int(store.now_ms() // 3_600_000)
    for each in (hour, hour + 1):
        store.client.sadd(store.keys.minutes("q", each), "x")
    store.delivery.offer("q", waiting("a", store.now_ms() - 60_000))
    assert store.delivery.transfer("q").moved == 1
    store.figures.count_minute({"q": {"failed": 1}})
    assert store.delivery.bury(DelayedQueue("q", store.layout), [], "dead") == (0, 0)
    assert latest(store) == ([0], [0], [0], [0], [0])
