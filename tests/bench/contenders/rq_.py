"""RQ. Run as a module it is the producer's program, or with the argument "move" a scheduler without a worker."""

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Any

from redis import Redis
from rq import Queue, Worker
from rq.job import cancel_job
from rq.scheduler import RQScheduler

from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Producer, serve

#: Read by ``rq worker``, whose settings this module is.
REDIS_URL = os.environ["BENCH_SERVER"]
#: RQ does not take a function of the module that is run.
TASK = "tests.bench.contenders.rq_.task"


def task(due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class RQProducer(Producer):
    """Enqueues as any app does."""

    def __init__(self) -> None:
        self._redis = Redis.from_url(REDIS_URL)
        self._queue = Queue(connection=self._redis)

    def one(self, due: float) -> str:
        """``enqueue_at``, or ``enqueue``."""
        return self._enqueue(due)

    def bulk(self, dues: Sequence[float]) -> list[str]:
        """``enqueue_at`` with a pipeline, as ``enqueue_many`` takes one, but that has no due times."""
        with self._redis.pipeline() as pipeline:
            ids = [self._enqueue(due, pipeline=pipeline) for due in dues]
            pipeline.execute()
        return ids

    def cancel(self, identity: str) -> None:
        """Takes it out of the registry of scheduled jobs; RQ keeps the job itself."""
        cancel_job(identity, connection=self._redis)

    def waiting(self) -> int:
        """Returns the size of the registry of scheduled jobs."""
        return self._queue.scheduled_job_registry.count

    def _enqueue(self, due: float, **options: Any) -> str:
        if due > time():
            return self._queue.enqueue_at(datetime.fromtimestamp(due, UTC), TASK, due, PAYLOAD, **options).id
        return self._queue.enqueue(TASK, due, PAYLOAD, **options).id


def consume() -> None:
    """Runs a worker with its scheduler."""
    redis = Redis.from_url(REDIS_URL)
    Worker([Queue(connection=redis)], connection=redis).work(with_scheduler=True, logging_level="WARNING")


def move() -> None:
    """Runs only what a worker starts as its scheduler."""
    scheduler = RQScheduler([Queue(connection=Redis.from_url(REDIS_URL))], Redis.from_url(REDIS_URL))
    scheduler.acquire_locks()
    scheduler.work()


if __name__ == "__main__":
    if sys.argv[1:] == ["move"]:
        move()
    else:
        serve(RQProducer)
