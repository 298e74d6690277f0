"""Makes what the fixture ``delayed_tasks`` gives a test."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from celery import Celery
from kombu.connection import Connection
from kombu.transport import memory as stock

from celery_ext.connection import uses_delayq
from celery_ext.testing import brokers
from celery_ext.testing.apps import pointed_at, send_task_of_celery
from celery_ext.testing.clock import Clock
from celery_ext.testing.delayed_tasks import DelayedTasks
from celery_ext.testing.runners import ByWorker, InThisProcess, Runner
from celery_ext.testing.running import Runs
from celery_ext.testing.sending import Sending
from kombu_delayq.errors import OtherTransport

#: The broker in memory.
MEMORY = "memory"

Connect = Callable[[Any], Connection]


@contextmanager
def delayed_tasks(broker: str, worker: Any = None) -> Iterator[DelayedTasks]:
    """Points all apps of the process at a broker of the test.

    Args:
        broker: ``memory``, or the URL of a Redis.
        worker: A worker of the test that runs in this process, or None. It keeps its own broker, which the apps use
            then.

    Raises:
        OtherTransport: The worker's broker is neither in memory nor one of ours.
    """
    clock, runs = Clock(), Runs()
    # A worker declares its queues itself.
    sending = Sending(clock, send_task_of_celery(), brokers.declare if worker is None else lambda app: None)
    place = _place_of(worker.app, clock) if worker is not None else _place(broker, clock)
    with place as connect, pointed_at(connect, sending) as patches:
        connection = worker.app.connection_for_write() if connect is None else connect(None)
        own = brokers.Broker(connection, sending)
        runner: Runner
        if worker is None:
            runner = InThisProcess(own, sending, runs, patches.extend)
        else:
            patches.extend(worker.app)
            runner = ByWorker(own, sending, runs)
        runs.listen()
        try:
            yield DelayedTasks(own, runner, sending, runs)
        finally:
            runs.close()
            own.close()


def _place(broker: str, clock: Clock) -> AbstractContextManager[Connect | None]:
    return brokers.memory(clock, shared=False) if broker == MEMORY else brokers.redis(broker)


def _place_of(app: Celery, clock: Clock) -> AbstractContextManager[Connect | None]:
    with app.connection_for_read() as connection:
        if uses_delayq(connection):
            return nullcontext()
        if issubclass(connection.get_transport_cls(), stock.Transport):
            return brokers.memory(clock, shared=True)
        raise OtherTransport(
            f"the worker of the test has the broker {connection.as_uri()}. With the fixture delayed_tasks its app "
            "needs broker_url='memory://', or a Redis with broker_transport='kombu_delayq.transport:Transport'"
        )
