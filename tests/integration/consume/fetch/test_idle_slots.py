"""What a queue at rest costs a Redis with hash slots, where each queue is asked about on its own."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
import redis
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.looped import Looped, publish
from tests.support.store.keyspace import FUTURE_MS, waiting

QUEUES = [f"queue{number}" for number in range(20)]


@pytest.fixture
def server() -> Iterator[PrivateRedis]:
    """A cluster of one node, for this test alone."""
    with PrivateRedis(slots=True) as server:
        yield server


def calls(client: redis.Redis, *names: str) -> list[int]:
    """Returns how often commands have been called, those of scripts included."""
    stats: Any = client.info("commandstats")
    return [stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names]


def test_a_consumer_asks_once_a_second_for_a_queue(server: PrivateRedis) -> None:
    """A wait lasts for longer than a second; what it does not cover is looked at by one command a second."""
    with Looped(Connection(server.url.replace("redis://", "delayq://")), *QUEUES) as looped:
        looped.until(looped.waits_for(*QUEUES))
        client = server.client()
        about = Keys(slots=True).consumed(QUEUES[-1])
        looped.until(lambda: '"subscribed": true' in str(client.hvals(about)), "each queue has heard of it")
        before, begun = calls(client, "blmove", "exists", "evalsha", "eval"), monotonic()
        looped.until(lambda: monotonic() - begun > 3)
        seconds = monotonic() - begun
        waits, looks, *scripts = (
            now - then for now, then in zip(calls(client, "blmove", "exists", "evalsha", "eval"), before, strict=True)
        )
        # One look of each queue a second by the consumer, and one by the leading transfer worker.
        assert waits == 0
        assert looks <= 2 * (seconds + 1) * len(QUEUES)
        assert sum(scripts) < len(QUEUES)
        with Connection(server.url.replace("redis://", "delayq://")) as sender:
            publish(sender, QUEUES[7], "rare", priority=9)
        looped.until(lambda: looped.received == ["rare"], "a priority that nobody waits for is found")


def test_a_leader_runs_no_script_for_an_empty_queue(server: PrivateRedis) -> None:
    """Queues without delayed messages cost one command each, and the one that gets a message is found the next time."""
    store = DelayStore(redis.Redis(port=server.port), Keys(slots=True))
    names = ("exists", "evalsha", "eval", "zrange")
    for due in ({}, {"queue7": FUTURE_MS}, {"queue7": FUTURE_MS}, {}):
        if due and not store.queues.size("queue7"):
            store.delivery.offer("queue7", waiting("i", FUTURE_MS))
        elif not due:
            store.lookup.cancel(["queue7"], ["i"])
        before = calls(store.client, *names)
        assert {form.queue: ms for form, ms in store.delivery.heads(QUEUES).due_ms.items()} == due
        looks, *scripts, reads = (now - then for now, then in zip(calls(store.client, *names), before, strict=True))
        assert looks <= len(QUEUES) + 1
        assert sum(scripts) <= 3
        assert reads <= 2 * len(LAYOUTS)
    store.close()
