"""Celery on RabbitMQ, with quorum queues and native delayed delivery. Run as a module it is the producer's program."""

import os
from datetime import UTC, datetime
from time import time

from celery import Celery
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from tests.bench.journal import arrive
from tests.bench.program import PAYLOAD, Cannot, Producer, serve

app = Celery("bench", broker=os.environ["BENCH_SERVER"])
app.conf.task_default_queue_type = "quorum"
app.conf.task_default_exchange_type = "topic"
# As in Celery's example of quorum queues. Without it messages are lost when the node, by way of flow control, reads
# nothing for 1 s: the connection breaks (TCP_USER_TIMEOUT), and what was on its way is not sent again.
app.conf.broker_transport_options = {"confirm_publish": True}


@app.task(name="bench.arrive", ignore_result=True)
def task(due: float, payload: str) -> None:
    """Notes when it begins."""
    arrive(due)


class RabbitProducer(Producer):
    """Publishes as any app does."""

    def __init__(self) -> None:
        """Declares what a worker declares when it starts, for messages are enqueued here before there is one."""
        with app.connection_for_write() as connection:
            declare_native_delayed_delivery_exchanges_and_queues(
                connection, app.conf.broker_native_delayed_delivery_queue_type
            )
            for queue in app.amqp.queues.values():
                queue.bind(connection.default_channel).declare()
                bind_queue_to_native_delayed_delivery_exchange(connection, queue)

    def one(self, due: float) -> str:
        """``apply_async``, with an eta unless the task is due."""
        options = {"eta": datetime.fromtimestamp(due, UTC)} if due > time() else {}
        return str(task.apply_async((due, PAYLOAD), **options).id)

    def cancel(self, identity: str) -> None:
        """There is no way."""
        raise Cannot("cannot: a revoke is kept by the workers that hear it, and the message stays")


#: What a worker imports when it starts.
FORKED_WITH = (
    *("celery.bin.worker", "celery.apps.worker", "celery.worker.consumer", "celery.worker.components"),
    *("celery.concurrency.solo", "celery.worker.strategy", "celery.app.trace", "kombu.transport.pyamqp"),
)


def consume() -> None:
    """Runs a worker; without children, for only its consumer talks to the broker while nothing happens."""
    app.worker_main(
        ["worker", "--pool=solo", "--loglevel=ERROR", f"--hostname={os.getpid()}@bench", "--without-mingle"]
    )


if __name__ == "__main__":
    serve(RabbitProducer)
