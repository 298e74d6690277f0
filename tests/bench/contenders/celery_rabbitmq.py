"""Celery on RabbitMQ, with quorum queues and native delayed delivery. Run as a module it is the producer's program."""

import os
from functools import partial

from celery import Celery
from kombu.transport.native_delayed_delivery import (
    bind_queue_to_native_delayed_delivery_exchange,
    declare_native_delayed_delivery_exchanges_and_queues,
)

from tests.bench.contenders import celery_programs
from tests.bench.contenders.celery_programs import REVOKED, when
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
        return str(task.apply_async((due, PAYLOAD), **when(due)).id)

    def cancel(self, identity: str) -> None:
        """There is no way."""
        raise Cannot(REVOKED)


#: What a worker imports when it starts.
FORKED_WITH = (*celery_programs.FORKED_WITH, "kombu.transport.pyamqp")
consume = partial(celery_programs.consume, app)

if __name__ == "__main__":
    serve(RabbitProducer)
