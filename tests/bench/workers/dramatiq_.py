"""dramatiq."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD, paced

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_SERVER"]))


@dramatiq.actor
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count):
        begin.send(0.0, PAYLOAD)


def trickle(count: int) -> None:
    """Enqueues tasks one by one, with pauses."""
    for due in paced(count):
        begin.send(due, PAYLOAD)
