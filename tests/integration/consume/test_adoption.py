"""Messages with a future eta that stand in a plain queue."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kombu import Consumer, Queue

from kombu_delayq import channel
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import in_hand

pytestmark = pytest.mark.both_layouts

COUNTDOWN_S = 3
#: Nothing is due before the end of a test.
LATER_S = 3600
#: What a stock producer may have sent, by the value that its task carries.
PRODUCERS: dict[str, dict[str, Any]] = {
    "protocol 2": {},
    "protocol 1": {"task_protocol": 1},
    "protocol 1, pickled": {"task_protocol": 1, "task_serializer": "pickle"},
}


@pytest.fixture(autouse=True)
def _pickle_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    # A worker of the superuser refuses pickles else, and containers run tests as the superuser.
    monkeypatch.setenv("C_FORCE_ROOT", "1")


def _publish_from_stock(make_proj: MakeProj, countdown: float, **settings: Any) -> None:
    for value, protocol in PRODUCERS.items():
        make_proj(broker_transport="", **protocol, **settings).send("record", value, countdown=countdown)


@pytest.mark.journey
@pytest.mark.parametrize("pool", ["prefork", "gevent"])  # Celery has two loops; all other pools run in that of prefork
def test_what_stands_in_a_plain_queue_is_put_into_the_store(make_proj: MakeProj, pool: str) -> None:
    """Tasks that stock producers sent with an eta wait in Redis, not in the worker, and run once, not early."""
    accepting = {"accept_content": ["json", "pickle"]}
    proj = make_proj(**accepting)
    client = proj.server.client()
    _publish_from_stock(make_proj, LATER_S)  # before there is a worker
    assert client.llen("celery") == len(PRODUCERS)
    worker = proj.worker(pool=pool)
    until(lambda: proj.delayed() == len(PRODUCERS))

    _publish_from_stock(make_proj, LATER_S)
    until(lambda: proj.delayed() == 2 * len(PRODUCERS))
    assert in_hand(client) == client.llen("celery") == 0
    proj.await_answers()
    scheduled = proj.app.control.inspect(timeout=30, limit=1).scheduled()
    assert {task["request"]["hostname"] for tasks in scheduled.values() for task in tasks} == {"broker"}
    due = time.time() + COUNTDOWN_S
    _publish_from_stock(make_proj, COUNTDOWN_S)
    runs = proj.await_runs(len(PRODUCERS))
    stays(lambda: len(proj.runs()) == len(PRODUCERS), 1)
    assert {run["value"] for run in runs} == PRODUCERS.keys()
    assert all(run["at"] >= due for run in runs)
    assert proj.delayed() == 2 * len(PRODUCERS)
    assert "Traceback" not in worker.log


class PlainConsumer:
    """A plain kombu consumer of the queue ``celery``.

    Args:
        proj: Whose broker.
        no_ack: Whether the broker forgets a message as soon as it is delivered.
    """

    def __init__(self, proj: Proj, *, no_ack: bool) -> None:
        self.connection = proj.connection()
        self.no_ack = no_ack
        self.received: list[float] = []
        consumer = Consumer(self.connection, [Queue("celery")], no_ack=no_ack, on_message=self._receive)
        consumer.consume()

    def drain(self, for_s: float) -> None:
        """Receives what comes in that time."""
        deadline = time.monotonic() + for_s
        while time.monotonic() < deadline:
            self._drain_once()

    def drain_until(self, condition: Callable[[], object]) -> None:
        """Receives what comes until a condition holds."""
        until(lambda: self._drain_once() or condition())

    def _drain_once(self) -> None:
        with suppress(TimeoutError):
            self.connection.drain_events(timeout=0.1)

    def _receive(self, message: Any) -> None:
        self.received.append(time.time())
        if not self.no_ack:
            message.ack()


#: Makes a plain consumer; the keyword is ``no_ack``.
MakeConsumer = Callable[..., PlainConsumer]


@pytest.fixture
def make_consumer(proj: Proj) -> Iterator[MakeConsumer]:
    made: list[PlainConsumer] = []

    def make(*, no_ack: bool) -> PlainConsumer:
        made.append(PlainConsumer(proj, no_ack=no_ack))
        return made[-1]

    yield make
    for consumer in made:
        consumer.connection.release()


@pytest.mark.parametrize("no_ack", [True, False])
def test_plain_consumers_get_a_task_when_it_is_due(
    make_proj: MakeProj, proj: Proj, make_consumer: MakeConsumer, no_ack: bool
) -> None:
    """A plain kombu consumer, with and without acknowledgements, gets what stood in its queue once, and not early."""
    stock, client = make_proj(broker_transport=""), proj.server.client()
    stock.send("record", countdown=LATER_S)
    consumer = make_consumer(no_ack=no_ack)
    consumer.drain_until(lambda: proj.delayed() == 1)
    assert not consumer.received
    due = time.time() + COUNTDOWN_S
    stock.send("record", countdown=COUNTDOWN_S)
    consumer.drain_until(lambda: consumer.received)
    consumer.drain(0.5)
    [at] = consumer.received
    assert at >= due
    assert proj.delayed() == 1
    consumer.drain_until(lambda: in_hand(client) == 0)


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_keeps_what_cannot_be_put_into_the_store(
    make_proj: MakeProj, proj: Proj, make_consumer: MakeConsumer, no_ack: bool
) -> None:
    """Where a key of another type is in the way, the consumer gets the message at once, as on the stock transport."""
    client = proj.server.client()
    client.set(proj.keys()[0], "in the way")
    make_proj(broker_transport="").send("record", countdown=300)
    consumer = make_consumer(no_ack=no_ack)
    consumer.drain_until(lambda: consumer.received)
    consumer.drain(0.3)
    assert len(consumer.received) == 1
    consumer.drain_until(lambda: in_hand(client) == client.llen("celery") == 0)


@pytest.mark.wide
def test_a_worker_keeps_what_cannot_be_put_into_the_store_till_it_is_due(make_proj: MakeProj, proj: Proj) -> None:
    """Where a key of another type is in the way, a worker holds the task as stock does and runs it once, not early."""
    proj.server.client().set(proj.keys()[0], "in the way")
    worker = proj.worker()
    stock = make_proj(broker_transport="")
    stock.send("record", "later", countdown=LATER_S)
    until(lambda: "stays with this consumer" in worker.log)
    assert in_hand(proj.server.client()) == 1
    due = time.time() + COUNTDOWN_S
    stock.send("record", countdown=COUNTDOWN_S)
    [run] = proj.await_runs(1)
    assert run["at"] >= due
    until(lambda: in_hand(proj.server.client()) == 1)
    assert len(proj.runs()) == 1


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_lagging_consumer_keeps_what_is_due_by_the_clock_of_redis(
    make_proj: MakeProj, proj: Proj, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch, no_ack: bool
) -> None:
    """A consumer whose clock lags takes a due task for an early one; the store declines it, and it is delivered."""
    monkeypatch.setattr(channel, "time", lambda: time.time() - 60)  # a second clock cannot be had
    make_proj(broker_transport="").send("record", eta=datetime.now(UTC) - timedelta(seconds=1))
    consumer = make_consumer(no_ack=no_ack)
    consumer.drain_until(lambda: consumer.received)
    consumer.drain(0.3)
    assert len(consumer.received) == 1
    assert proj.delayed() == 0
    consumer.drain_until(lambda: in_hand(proj.server.client()) == 0)
