"""Producers and consumers that are not Celery's, with the message property ``DelaySeconds``."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue
from kombu.mixins import ConsumerMixin
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.support.conditions import DEADLINE_S, stays, until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

JOBS = Queue("jobs")

#: A body, when it came, and whether it came again.
Received = list[tuple[Any, float, bool]]


class _Service(ConsumerMixin):
    """A consumer as kombu's documentation shows it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.received: Received = []

    def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
        return [consumer([JOBS], on_message=self.on_message)]

    def on_message(self, message: Any) -> None:
        self.received.append((message.payload, time.time(), bool(message.headers.get("redelivered"))))
        message.ack()


@contextmanager
def _running(service: _Service) -> Iterator[Received]:
    thread = Thread(target=service.run, daemon=True)
    thread.start()
    try:
        yield service.received
    finally:
        service.should_stop = True
        thread.join(30)
    assert not thread.is_alive()


def _receive(connection: Connection, count: int, handle: Callable[[Any], None], queue: Queue = JOBS) -> Received:
    """Consumes ``count`` messages and a moment longer, to see that no more come."""
    received: Received = []

    def on_message(message: Any) -> None:
        received.append((message.payload, time.time(), bool(message.headers.get("redelivered"))))
        handle(message)

    with connection.Consumer(queue, on_message=on_message):
        deadline = time.monotonic() + DEADLINE_S
        while len(received) < count and time.monotonic() < deadline:
            with suppress(TimeoutError):
                connection.drain_events(timeout=1)
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.3)
    return received


def _ack(message: Any) -> None:
    message.ack()


def test_a_consumer_mixin_gets_delayed_messages_once_and_not_early(proj: Proj) -> None:
    """A service on kombu's ``ConsumerMixin`` gets delayed messages when they are due, and others at once."""
    with proj.connection() as connection, _running(_Service(proj.connection())) as received:
        producer = connection.Producer(routing_key="jobs")
        begun = time.time()
        for delay in (9, 3, "3", 6, 0, None):  # far apart: publishing takes its time
            producer.publish({"delay": delay}, DelaySeconds=delay)
        until(lambda: len(received) == 6)
        stays(lambda: len(received) == 6, 0.3)
    assert [body["delay"] for body, _, _ in received] == [0, None, 3, "3", 6, 9]
    assert all(at >= begun + float(body["delay"] or 0) for body, at, _ in received)


def test_what_was_sent_twice_comes_twice(proj: Proj) -> None:
    """Messages that are alike are not one message, whatever their headers say."""
    with proj.connection() as connection:
        producer = connection.Producer(routing_key="jobs")
        for headers in ({}, {}, {"id": "x"}, {"id": "x"}, {"id": ["not", "text"]}):
            producer.publish("same", headers=headers, DelaySeconds=1)
        assert len(_receive(connection, 5, _ack)) == 5


@pytest.mark.parametrize("options", [{}, {"ack_emulation": False}])
def test_a_requeued_message_is_not_delayed_again(make_proj: MakeProj, options: dict[str, Any]) -> None:
    """A message that is requeued after its delay comes again at once, and one that is rejected does not."""
    proj = make_proj(broker_transport_options=options)

    def requeue_once(message: Any) -> None:
        if message.payload == "rejected":
            message.reject()
        elif len(again) == 0:
            again.append(message.payload)
            message.requeue()
        else:
            message.ack()

    again: list[str] = []
    with proj.connection() as connection:
        producer = connection.Producer(routing_key="jobs")
        begun = time.time()
        for body in ("requeued", "rejected"):
            producer.publish(body, DelaySeconds=1)
        received = _receive(connection, 3, requeue_once)
        assert connection.default_channel.store.figures.counts(["jobs"])["jobs"].transferred == 2
    assert sorted(body for body, _, _ in received) == ["rejected", "requeued", "requeued"]
    assert all(at >= begun + 1 for _, at, _ in received)
    assert proj.delayed("jobs") == 0


def test_no_transfer_worker_runs_with_transfer_off(proj: Proj) -> None:
    """With ``transfer=False`` a consumer starts no thread and no subscription; another one does the work for it."""
    client = proj.server.client()
    with proj.connection(transfer=False) as connection, connection.Consumer(JOBS, callbacks=[print]):
        connection.Producer(routing_key="jobs").publish("x", DelaySeconds=0.5)
        stays(lambda: proj.delayed("jobs") == 1 and not client.exists("{delayq}:transfer"), 1.5)
        assert client.pubsub_numsub("delayq:wake:0") == [("delayq:wake:0", 0)]
        with proj.connection() as other, other.Consumer(Queue("else"), callbacks=[print]):
            until(lambda: proj.delayed("jobs") == 0)


@pytest.mark.parametrize("delay_s", [0, 600])
def test_a_connection_that_is_lost_while_a_queue_is_declared(proj: Proj, delay_s: int) -> None:
    """The connection is made again, and the message goes where it belongs, once."""
    lost = iter([True])

    class Unlucky(Queue):
        def declare(self, *args: Any, **kwargs: Any) -> Any:
            if next(lost, False):
                raise RedisConnectionError("lost")
            return super().declare(*args, **kwargs)

    with proj.connection() as connection:
        connection.Producer().publish(
            {"n": 1}, routing_key="jobs", declare=[Unlucky("jobs")], retry=True, DelaySeconds=delay_s
        )
    assert next(lost, None) is None
    assert (proj.server.client().llen("jobs"), proj.delayed("jobs")) == ((0, 1) if delay_s else (1, 0))


def test_who_consumes_redissons_form_makes_its_queue_known(proj: Proj, layout: str) -> None:
    """The first message may be that of a JVM service, which tells no transfer worker of the queue."""
    with proj.connection() as connection, connection.Consumer(JOBS, on_message=print):
        assert proj.server.client().sismember("{delayq}:queues", "jobs") == (layout == "redisson")


@pytest.mark.parametrize("empty", ["queue_purge", "queue_delete"])
def test_a_full_queue_goes_in_the_background(proj: Proj, empty: str) -> None:
    """Redis goes on while it frees what was ready in a queue that is emptied or deleted."""
    client = proj.server.client()
    client.lpush("jobs", *["x" * 1000] * 2_000)
    with proj.connection() as connection:
        Queue("jobs", Exchange("shop"), "jobs")(connection.default_channel).declare()
        client.config_resetstat()
        getattr(connection.default_channel, empty)("jobs")
    assert not client.exists("jobs")
    until(lambda: client.info("memory")["lazyfreed_objects"] > 0)
