"""Queues of replies and of remote control, told from queues of tasks by what they are, not by how they are declared."""

import threading
from typing import Any

import pytest
from celery.app.defaults import NAMESPACES
from kombu import Connection, Exchange, Queue
from kombu.pidbox import Mailbox
from kombu.utils.uuid import uuid

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.wide

#: Settings of Celery 5.6 and later.
HAS_CONTROL_SETTINGS = "queue_durable" in NAMESPACES["control"]


def transfers() -> int:
    """Counts the transfer workers that run in this process."""
    return sum(thread.name == "delayq-transfer" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _none_is_left() -> None:
    until(lambda: transfers() == 0, what="no transfer worker of a test before")


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"control_queue_durable": True, "control_queue_exclusive": False},
        {"control_queue_durable": False, "control_queue_exclusive": True},
        {"control_exchange": "ours", "control_queue_durable": True, "control_queue_exclusive": False},
    ],
    ids=["defaults", "durable", "exclusive", "another exchange"],
)
def test_a_process_that_inspects_runs_no_transfer_worker(make_proj: MakeProj, conf: dict[str, Any]) -> None:
    """Asking workers by remote control starts nothing in the process that asks, however its queue is declared."""
    if conf and not HAS_CONTROL_SETTINGS:
        pytest.skip("this Celery has no such settings")
    proj = make_proj(**conf)
    proj.worker(pool="solo")
    proj.await_answers()
    found = []

    def on_reply(body: object) -> None:
        found.append(transfers())

    assert proj.app.control.broadcast("ping", reply=True, limit=1, timeout=20, callback=on_reply)
    assert found == [0]
    assert proj.keys()[0] not in proj.server.client().keys("delayq:*")


def test_a_process_that_waits_for_results_runs_no_transfer_worker(make_proj: MakeProj) -> None:
    """The queue of results of the backend rpc starts none either."""
    proj = make_proj(result_backend="rpc://")
    proj.worker(pool="solo")
    result = proj.send("record", 1, countdown=0.5)
    result.get(timeout=60)
    assert transfers() == 0


def test_a_direct_mailbox_starts_no_transfer_worker(proj: Proj) -> None:
    """A node of plain kombu's remote control that has a direct exchange takes commands, and no delayed messages."""
    with proj.connection() as connection, connection.channel() as channel:
        node = Mailbox("house", type="direct")(connection).Node("kitchen", channel=channel)
        node.listen(channel)
        assert transfers() == 0
        assert channel.durable_queues() == set()


@pytest.mark.both_layouts
@pytest.mark.parametrize(
    "queue",
    [
        Queue("short-lived", durable=False, auto_delete=True),
        Queue("exclusive", exclusive=True),
        Queue(uuid(), Exchange("answers"), durable=False, auto_delete=True, exclusive=True),
        Queue("jobs.pidbox", Exchange("jobs.pidbox"), routing_key="jobs"),
        Queue("6f1f2a6e-8f3e-3c1a-9f31-0e5a3b1c2d4e", durable=True),
    ],
    ids=["auto_delete", "exclusive", "of a random id", "like a mailbox", "like a reply queue"],
)
def test_a_queue_of_tasks_gets_a_transfer_worker_however_it_is_declared(proj: Proj, queue: Queue) -> None:
    """A queue that goes with its consumer, or is named oddly, delivers what is delayed."""
    received: list[Any] = []
    key = queue.routing_key if queue.exchange.name else queue.name
    with proj.connection() as connection:
        channel = connection.default_channel
        with connection.Consumer([queue(channel)], callbacks=[lambda body, _: received.append(body)], no_ack=True):
            assert transfers() == 1
            connection.Producer().publish("soon", exchange=queue.exchange, routing_key=key, DelaySeconds=0.3)
            until(lambda: _drained(connection) or received, what="delivered")
    assert received == ["soon"]


def _drained(connection: Connection) -> None:
    try:
        connection.drain_events(timeout=0.1)
    except TimeoutError:
        return
