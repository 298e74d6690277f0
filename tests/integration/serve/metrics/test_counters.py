"""Counters and the histogram of lateness: right over a fleet, through a purge, and gone with their queue."""

from collections.abc import Sequence

import pytest
import redis

from celery_ext.serve import DelayqCollector
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.serve.metrics import Series, scraped
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, waiting
from tests.support.workers.transfers import Transfer, arrived, offer, transfer

__all__ = ["transfer"]

QUEUE = "celery"


def lateness_of(found: dict[Series, float], queue: str = QUEUE) -> tuple[list[float], float]:
    """Returns how many messages were late by no more than each bound, and the sum in s."""
    buckets = {key[1]: value for key, value in found.items() if key[0] == "delivery_lateness_seconds_bucket"}
    counts = [buckets[bound] for bound in sorted(buckets, key=float)]
    assert counts[-1] == found["delivery_lateness_seconds_count", queue]
    return counts, found["delivery_lateness_seconds_sum", queue]


def put(store: DelayStore, latenesses_s: Sequence[float]) -> None:
    """Stores messages that are due since so many s."""
    for number, late_s in enumerate(latenesses_s):
        store.delivery.offer(QUEUE, waiting(f"{number}: late by {late_s}", store.now_ms() - late_s * 1000))


def transfer_all(store: DelayStore) -> None:
    """Transfers everything that is due."""
    while store.delivery.transfer(QUEUE).moved:
        pass


def test_the_histogram_has_each_message_in_its_bucket(store: DelayStore) -> None:
    """Messages of known lateness, transferred one by one or together, are in the bucket above it."""
    for late_s in (1.1, 2.7, 6.0, 12.0, 70.0, 1000.0, 20_000.0):
        put(store, [late_s])
        transfer_all(store)
    put(store, [32.0, 33.0, 34.0, 35.0])
    transfer_all(store)
    found = scraped(DelayqCollector(store))
    assert found["transferred_messages_total", QUEUE] == 11
    counts, sum_s = lateness_of(found)
    #                 .005 .01 .025 .05 .1 .25 .5 1 2.5 5 10 30 60 300 900 3600 inf
    assert counts == [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 8, 9, 9, 10, 11]
    assert sum_s == pytest.approx(1.1 + 2.7 + 6 + 12 + 70 + 1000 + 20_000 + 134, abs=20)


def test_counters_survive_a_purge_and_go_with_the_queue(store: DelayStore) -> None:
    """A purge counts as an operation and resets nothing; a queue that is deleted begins anew."""
    put(store, [1.0, 1.0, 1.0])
    transfer_all(store)
    for number in range(4):
        store.delivery.offer(QUEUE, waiting(f"{number}", FUTURE_MS))
    store.lookup.cancel([QUEUE], ["0"])
    store.client.delete(QUEUE)
    collector = DelayqCollector(store, queues=[QUEUE])
    assert store.queues.purge(QUEUE) == 3
    store.queues.know(QUEUE)
    found = scraped(collector)
    assert found["transferred_messages_total", QUEUE] == 3
    assert (found["operations_total", "cancel", QUEUE], found["operations_total", "purge", QUEUE]) == (1, 3)
    store.queues.delete(QUEUE)
    assert scraped(collector)["transferred_messages_total", QUEUE] == 0


def test_a_fleet_counts_each_message_once(
    transfer: Transfer, make_store: MakeStore, client: redis.Redis, layout: str
) -> None:
    """With several transfer workers, one of which goes, each exporter says the same, and it is right."""
    store = make_store()
    workers = transfer(3)
    for number in range(60):
        offer(store, f"{number}", 0.05 + number / 100)
    until(lambda: sum(arrived(client).values()) > 10)
    next(worker for worker in workers if worker.leading).stop()
    until(lambda: sum(arrived(client).values()) == 60)
    one, other = scraped(DelayqCollector(store)), scraped(DelayqCollector(make_store()))
    assert one["transferred_messages_total", QUEUE] == other["transferred_messages_total", QUEUE] == 60
    counts, sum_s = lateness_of(one)
    assert (counts, sum_s) == lateness_of(other)
    assert counts == sorted(counts)
    assert 0 < sum_s < 60
