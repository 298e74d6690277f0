"""dramatiq."""

import os
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tests.bench.journal import arrive
from tests.bench.workers import PAYLOAD

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_SERVER"]))


@dramatiq.actor
def begin(due: float, payload: str) -> None:
    """Notes that it begins."""
    arrive(due)


def send(dues: Sequence[float]) -> None:
    """Enqueues tasks."""
    for due in dues:
        begin.send(due, PAYLOAD)
