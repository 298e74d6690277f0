"""procrastinate on PostgreSQL. Run as a module it is the producer's program."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time

from procrastinate import App, PsycopgConnector
from procrastinate.jobs import JobDeferrer

from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Producer, serve

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_SERVER"]))


@app.task(name="bench.arrive")
def task(due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class ProcrastinateProducer(Producer):
    """Defers as a synchronous program does: the connector then uses a ``SyncPsycopgConnector``."""

    def __init__(self) -> None:
        app.open()

    def one(self, due: float) -> int:
        """``defer``."""
        return _at(due).defer(due=due, payload=PAYLOAD)

    def bulk(self, dues: Sequence[float]) -> list[int | None]:
        """What ``batch_defer`` does, which takes only one schedule for all."""
        jobs = [_at(due).make_new_job(due=due, payload=PAYLOAD) for due in dues]
        return [job.id for job in app.job_manager.batch_defer_jobs(jobs)]

    def cancel(self, identity: int) -> None:
        """Marks the job as cancelled."""
        if not app.job_manager.cancel_job_by_id(identity):
            raise RuntimeError(f"{identity} was not cancelled")


def _at(due: float) -> JobDeferrer:
    """Returns the task with a schedule, unless it is due."""
    return task.configure(schedule_at=datetime.fromtimestamp(due, UTC) if due > time() else None)


def consume() -> None:
    """Runs a worker."""
    app.run_worker()


if __name__ == "__main__":
    serve(ProcrastinateProducer)
