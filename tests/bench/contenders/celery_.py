"""Celery: stock, or with kombu-delayq. Run as a module it is the producer's program."""

import os
from collections.abc import Sequence
from typing import Any

from celery import Celery

from celery_ext import Call, install, send_many
from celery_ext.waiting import control
from tests.bench.contenders import celery_programs
from tests.bench.contenders.celery_programs import REVOKED, when
from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Cannot, Producer, serve

#: What a worker imports when it starts.
FORKED_WITH = (
    *(*celery_programs.FORKED_WITH, "celery.events.state", "celery.bin.celery"),
    *("kombu.transport.redis", "kombu_delayq.transport", "celery_ext.cli"),
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
            send_many(app, task, (Call((due, PAYLOAD), **when(due)) for due in dues), on_sent=ids.extend)
            return ids
        with app.producer_pool.acquire(block=True) as producer, producer.batch():
            return [self._publish(due, producer=producer) for due in dues]

    def cancel(self, identity: str) -> None:
        """Takes it out of Redis."""
        if not layout:
            raise Cannot(REVOKED)
        outcome = control.cancel(app, identity)
        if outcome != "cancelled":
            raise RuntimeError(f"{identity} was {outcome}")

    def waiting(self) -> int:
        """Returns the size of the delayed store."""
        with control.store_of_app(app) as store:
            return store.queues.size(app.conf.task_default_queue)

    def _publish(self, due: float, **options: Any) -> str:
        return str(task.apply_async((due, PAYLOAD), **when(due), **options).id)


def consume() -> None:
    """Runs a worker, with BENCH_QUIET one that does not tell others how it is."""
    celery_programs.consume(app, *(["--without-gossip", "--without-heartbeat"] if "BENCH_QUIET" in os.environ else []))


if __name__ == "__main__":
    serve(CeleryProducer)
