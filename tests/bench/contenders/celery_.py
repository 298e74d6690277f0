"""Celery: stock, or with kombu-delayq. Run as a module it is the producer's program."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import Any

from celery import Celery

from celery_ext import Call, install, send_many
from celery_ext.waiting import control
from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Cannot, Producer, serve

#: What a worker imports when it starts.
FORKED_WITH = (
    *("celery.bin.worker", "celery.apps.worker", "celery.worker.consumer", "celery.worker.components"),
    *("celery.concurrency.solo", "celery.worker.strategy", "celery.app.trace"),
    *("celery.events.state", "celery.bin.celery"),
    *("kombu.transport.redis", "kombu_delayq.transport", "celery_ext.cli.root"),
)

app = Celery("bench", broker=os.environ["BENCH_SERVER"])
if layout := os.environ.get("BENCH_LAYOUT"):
    app.conf.broker_transport = "kombu_delayq.transport:Transport"
    app.conf.broker_transport_options = {"layout": layout}
    if os.environ.get("BENCH_LIGHT"):
        app.conf.broker_transport_options |= {"compact": True}
        app.amqp.argsrepr_maxsize = app.amqp.kwargsrepr_maxsize = 50
        install(app, fast_publish=True)


@app.task(name="bench.arrive", ignore_result=True)
def task(due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class CeleryProducer(Producer):
    """Publishes as any app does."""

    def one(self, due: float) -> str:
        """``apply_async``, with an eta unless the task is due."""
        return self._publish(due)

    def bulk(self, dues: Sequence[float]) -> list[str]:
        """``send_many`` of kombu-delayq; else ``apply_async`` in a ``Producer.batch`` of kombu 5.7."""
        if layout:
            ids: list[str] = []
            send_many(app, task, (Call((due, PAYLOAD), **_when(due)) for due in dues), on_sent=ids.extend)
            return ids
        with app.producer_pool.acquire(block=True) as producer, producer.batch():
            return [self._publish(due, producer=producer) for due in dues]

    def cancel(self, identity: str) -> None:
        """Takes it out of Redis."""
        if not layout:
            raise Cannot("cannot: a revoke is kept by the workers that hear it, and the message stays")
        outcome = control.cancel(app, identity)
        if outcome != "cancelled":
            raise RuntimeError(f"{identity} was {outcome}")

    def waiting(self) -> int:
        """Returns the size of the delayed store."""
        with control.store_of_app(app) as store:
            return store.queues.size(app.conf.task_default_queue)

    def _publish(self, due: float, **options: Any) -> str:
        return str(task.apply_async((due, PAYLOAD), **_when(due), **options).id)


def _when(due: float) -> dict[str, Any]:
    """Returns the options of a call: an eta unless the task is due."""
    return {"eta": datetime.fromtimestamp(due, UTC)} if due > time() else {}


def consume() -> None:
    """Runs a worker.

    Without children, for only its consumer talks to the broker while nothing happens; and it does not ask all others
    for their state when it starts, which takes long where a hundred start at once.
    """
    name = f"--hostname={os.getpid()}@bench"
    app.worker_main(["worker", "--pool=solo", "--loglevel=ERROR", name, "--without-mingle"])


if __name__ == "__main__":
    serve(CeleryProducer)
