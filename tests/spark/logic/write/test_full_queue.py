"""Spark jobs at a queue that has ``max_queue_depth`` messages: they wait for room, and not for ever."""

from threading import Event, Thread

import pytest

from celery_ext.spark.errors import BrokerUnavailable
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.sender import Sender
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.jobs import begun

DEPTH = 2
#: Fills the queue three times and a half.
OFFERS = [Offer(f"i{n}", "", 0, f"body {n}") for n in range(7)]


def send(store: DelayStore, timeout_s: float) -> None:
    """Sends as a task of a job does."""
    options = WriteOptions.parse({"task": "t", "max_queue_depth": str(DEPTH), "write_timeout": f"{timeout_s}s"})
    sender = Sender(store, begun(store, max_depth=DEPTH), options)
    sender.add("q", OFFERS)
    sender.flush()


def test_a_queue_that_stays_full_fails_the_job(store: DelayStore) -> None:
    """Where nobody consumes for the time that a job waits at most, it fails, and says why."""
    with pytest.raises(BrokerUnavailable, match=r"queue .* has 2 messages"):
        send(store, 0.4)
    assert store.client.llen("q") == DEPTH


def test_a_queue_that_is_consumed_gets_all(store: DelayStore) -> None:
    """Where somebody consumes, if slowly, a job waits for room as often as it must, and sends each message once."""
    done, bodies = Event(), []

    def consume() -> None:
        while not done.wait(0.1):
            bodies.extend(store.client.rpop("q", DEPTH) or [])

    consumer = Thread(target=consume)
    consumer.start()
    try:
        send(store, 20.0)
    finally:
        done.set()
        consumer.join()
    bodies.extend(store.client.rpop("q", DEPTH) or [])
    assert bodies == [f"body {n}".encode() for n in range(7)]
