"""dramatiq."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.journal import arrive

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_SERVER"]))


@dramatiq.actor
def begin(payload: str) -> None:
    """Notes that it begins."""
    arrive(0.0)


def fill(count: int) -> None:
    """Enqueues tasks."""
    for _ in range(count):
        begin.send("x" * 100)
