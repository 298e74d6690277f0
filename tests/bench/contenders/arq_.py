"""arq. Run as a module it is the producer's program."""

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import run_worker

from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Cannot, Producer, serve

REDIS = RedisSettings.from_dsn(os.environ["BENCH_SERVER"])
#: For ``arq --custom-log-dict``: only warnings.
LOGGING = {"version": 1, "disable_existing_loggers": False, "loggers": {"arq": {"level": "WARNING"}}}


async def task(ctx: dict[str, Any], due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class WorkerSettings:
    """Read by ``arq``."""

    functions: ClassVar = [task]
    redis_settings = REDIS


class BusySettings:
    """For a worker that is to take more than 100 jobs every 0.5 s. ``arq`` reads no inherited settings."""

    functions: ClassVar = [task]
    redis_settings = REDIS
    poll_delay = 0.01


class ArqProducer(Producer):
    """Enqueues as any app does, from an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._redis = self._loop.run_until_complete(create_pool(REDIS))

    def one(self, due: float) -> str:
        """``enqueue_job``, deferred unless the task is due."""
        return self._loop.run_until_complete(self._enqueue(due))

    def each(self, dues: Sequence[float]) -> list[str]:
        """``enqueue_job``, one after the other."""

        async def enqueue() -> list[str]:
            return [await self._enqueue(due) for due in dues]

        return self._loop.run_until_complete(enqueue())

    def cancel(self, identity: str) -> None:
        """Not possible."""
        raise Cannot("cannot: only workers with `allow_abort_jobs` abort jobs, and wait for their turn to do so")

    async def _enqueue(self, due: float) -> str:
        until = datetime.fromtimestamp(due, UTC) if due > time() else None
        job = await self._redis.enqueue_job("task", due, PAYLOAD, _defer_until=until)
        assert job is not None
        return job.job_id


def consume() -> None:
    """Runs a worker."""
    run_worker(WorkerSettings)


if __name__ == "__main__":
    serve(ArqProducer)
