"""Tasks that expire, and queues that do."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import kombu
import pytest
from kombu import Connection, Queue

from tests.support.conditions import stays, until
from tests.support.workers.harness import TRANSPORT, Proj
from tests.support.workers.transfers import Transfer

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]

QUEUE = Queue("brief", expires=3)
#: Bodies, and when they came.
Received = list[tuple[Any, float]]
queues_expire = pytest.mark.skipif(kombu.VERSION < (5, 7), reason="kombu knows x-expires on Redis from 5.7 on")


@pytest.mark.journey
def test_a_task_that_expires_before_it_is_due_never_runs(proj: Proj) -> None:
    """A task whose ``expires`` is before its countdown is revoked and does not run; one that expires later runs."""
    expired = proj.send("record", "expired", countdown=2, expires=1)
    valid = proj.send("record", "valid", countdown=2, expires=60)
    assert proj.delayed() == 2
    proj.worker()
    assert valid.get(timeout=60) == "valid"
    until(lambda: expired.state == "REVOKED")
    assert [run["value"] for run in proj.runs()] == ["valid"]
    until(lambda: proj.server.client().hlen("unacked") == 0)


def _drain(connection: Connection, received: Received) -> None:
    with connection.Consumer(
        QUEUE, callbacks=[lambda body, message: received.append((body, time.time()))], no_ack=True
    ):

        def drain() -> bool:
            with suppress(TimeoutError):
                connection.drain_events(timeout=0.5)
            return bool(received)

        until(drain, what="a message")


def _get(connection: Connection, received: Received) -> None:
    queue = QUEUE(connection.default_channel)
    queue.declare()

    def get() -> bool:
        message = queue.get(no_ack=True)
        if message is not None:
            received.append((message.payload, time.time()))
        return bool(received)

    until(get, what="a message")


#: Who consumes: by which transport, with which options, and how.
CONSUMERS: dict[str, tuple[str | None, dict[str, Any], Callable[[Connection, Received], None]]] = {
    "with a transfer worker": (TRANSPORT, {}, _drain),
    "without": (TRANSPORT, {"transfer": False}, _drain),
    "one by one": (TRANSPORT, {}, _get),
    "stock": (None, {}, _drain),
}


@queues_expire
@pytest.mark.parametrize("consumer", CONSUMERS.values(), ids=list(CONSUMERS))
def test_delayed_messages_come_on_time_whoever_consumes_and_transfers(
    proj: Proj, transfer: Transfer, consumer: tuple[str | None, dict[str, Any], Any]
) -> None:
    """A message that is due later than its queue's ``x-expires`` from now arrives on time."""
    transport, options, consume = consumer
    received: Received = []
    transfer()
    with proj.connection() as connection:
        due = time.time() + 5
        connection.Producer(routing_key="brief").publish("kept", declare=[QUEUE], DelaySeconds=5)
    connection = proj.connection(**options) if transport else Connection(proj.conf["broker_url"])
    with connection:
        consume(connection, received)
    [(body, at)] = received
    assert body == "kept"
    assert at >= due


@queues_expire
def test_overdue_tasks_wait_for_a_transfer_worker_while_a_worker_consumes(proj: Proj, transfer: Transfer) -> None:
    """A Celery worker that transfers nothing, also one that is busy, keeps the delayed tasks of its queue."""
    options = {**proj.conf.get("broker_transport_options", {}), "transfer": False}
    conf = {"task_queues": {"brief": {"exchange": "brief", "binding_key": "brief", "expires": 4}}}
    proj.worker("-Q", "brief", concurrency=1, broker_transport_options=options, worker_prefetch_multiplier=1, **conf)
    proj.app.conf.update(conf)
    for seconds in (9, 0):  # one runs, the other fills the prefetch buffer
        proj.send("busy", seconds, queue="brief")
    proj.await_runs(1, name="busy")
    proj.send("record", "kept", queue="brief", countdown=0.5)
    stays(lambda: proj.delayed("brief") == 1, 7)
    transfer()
    proj.await_runs(1, name="record")
