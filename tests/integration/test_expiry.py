"""Tasks that expire, and queues that do."""

import time
from contextlib import suppress
from typing import Any

import kombu
import pytest
from kombu import Queue

from tests.integration.harness import Proj
from tests.waiting import stays, until

pytestmark = pytest.mark.both_forms

QUEUE = Queue("brief", expires=3)
queues_expire = pytest.mark.skipif(kombu.VERSION < (5, 7), reason="kombu knows x-expires on Redis from 5.7 on")


def test_a_task_that_expires_before_it_is_due_never_runs(proj: Proj) -> None:
    """A task whose ``expires`` is before its countdown is revoked and does not run; one that expires later runs."""
    proj.worker()
    expired = proj.send("record", "expired", countdown=2, expires=1)
    valid = proj.send("record", "valid", countdown=2, expires=60)
    assert proj.delayed() == 2
    assert valid.get(timeout=20) == "valid"
    until(lambda: expired.state == "REVOKED")
    assert [run["value"] for run in proj.runs()] == ["valid"]
    until(lambda: proj.server.client().hlen("unacked") == 0)


@queues_expire
def test_delayed_messages_expire_with_their_unused_queue(proj: Proj) -> None:
    """When nobody uses a queue for the time of its ``x-expires``, its delayed messages are gone too, not before."""
    with proj.connection() as connection:
        producer = connection.Producer(routing_key="brief")
        producer.publish("forgotten", declare=[QUEUE], DelaySeconds=60)
        stays(lambda: proj.delayed("brief") == 1, 1)
        until(lambda: proj.server.client().keys("*brief}*") == [])


@queues_expire
def test_delayed_messages_live_while_their_queue_has_a_consumer(proj: Proj) -> None:
    """A consumer keeps a queue's delayed messages beyond ``x-expires``; it gets them on time."""
    received: list[Any] = []
    with proj.connection() as connection:
        consumer = connection.Consumer(QUEUE, callbacks=[lambda body, _: received.append((body, time.time()))])
        consumer.no_ack = True
        with consumer:
            due = time.time() + 5
            connection.Producer(routing_key="brief").publish("kept", declare=[QUEUE], DelaySeconds=5)
            while not received and time.time() < due + 20:
                with suppress(TimeoutError):
                    connection.drain_events(timeout=1)
    [(body, at)] = received
    assert body == "kept"
    assert at >= due
