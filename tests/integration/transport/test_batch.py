"""``Producer.batch`` of kombu 5.7 with delayed messages in it."""

import time
from collections.abc import Callable
from typing import Any

import kombu
import pytest
from kombu import Producer, Queue

from tests.support.workers.harness import MakeProj, Proj

pytestmark = [
    pytest.mark.both_layouts,
    pytest.mark.skipif(kombu.VERSION < (5, 7), reason="Producer.batch is new in kombu 5.7"),
]

QUEUES = ("one", "two", "three")


def _receive(proj: Proj, count: int, **options: Any) -> list[tuple[Any, float]]:
    """Consumes ``count`` messages. Returns each body, and when it came."""
    received: list[tuple[Any, float]] = []
    with proj.connection(**options) as connection:
        queues = [Queue(name) for name in QUEUES]
        with connection.Consumer(queues, callbacks=[lambda body, _: received.append((body, time.time()))], no_ack=True):
            while len(received) < count:
                connection.drain_events(timeout=30)
    return received


def _stats(proj: Proj) -> dict[str, tuple[int, int]]:
    with proj.connection() as connection:
        stats = [connection.default_channel.store.queues.stats(queue) for queue in QUEUES]
    return {each.queue: (each.delayed, each.ready) for each in stats}


def _publish(producer: Producer, count: int, delay: float = 1.0) -> None:
    """Publishes to each queue, in turn, ``count`` delayed and ``count`` immediate messages."""
    for n in range(count):
        for queue in QUEUES:
            producer.publish((queue, n), routing_key=queue, DelaySeconds=delay)
            producer.publish((queue, count + n), routing_key=queue)


@pytest.mark.parametrize("options", [{}, {"global_keyprefix": "my:"}])
def test_delayed_and_immediate_messages_in_one_batch(make_proj: MakeProj, options: dict[str, Any]) -> None:
    """Nothing of a batch is visible before its end; then each message is in its place, and each comes once, in order.

    This holds with a ``global_keyprefix`` too.
    """
    proj = make_proj(broker_transport_options=options)
    begun = time.time()
    with proj.connection() as connection:
        producer = connection.Producer()
        with producer.batch():
            _publish(producer, 20, delay=2)
            assert _stats(proj) == dict.fromkeys(QUEUES, (0, 0))
        assert _stats(proj) == dict.fromkeys(QUEUES, (20, 20))
    received = _receive(proj, 120)
    for queue in QUEUES:
        # The immediate ones first, then the delayed ones, each in the order of publishing.
        numbers = [n for (name, n), _ in received if name == queue]
        assert numbers == [*range(20, 40), *range(20)]
    assert all(at >= begun + 2 for (_, n), at in received if n < 20)
    assert not options or all(key.startswith("my:") for key in proj.server.client().scan_iter())


def test_a_batch_larger_than_its_size_and_than_a_script_call(proj: Proj) -> None:
    """A batch sends what it has whenever it is full, and stores many and large messages in several calls."""
    with proj.connection() as connection:
        producer = connection.Producer()
        with producer.batch(max_size=100):
            _publish(producer, 100, delay=60)
            assert sum(map(sum, _stats(proj).values())) == 600
        with producer.batch(max_size=1000):
            for n in range(500):
                producer.publish("x" * 10_000, routing_key="one", DelaySeconds=60 + n)
        assert _stats(proj) == {"one": (600, 100), "two": (100, 100), "three": (100, 100)}


def _nested(producer: Producer) -> None:
    with producer.batch():
        _publish(producer, 1)


def _with_exchange(producer: Producer) -> None:
    queue = Queue("one", kombu.Exchange("topics", type="topic"), "a.#")
    producer.publish("x", exchange=queue.exchange, routing_key="a.b", declare=[queue], DelaySeconds=60)


def _fail_in_batch(producer: Producer, publish: Callable[[Producer], None]) -> None:
    with producer.batch():
        publish(producer)
        raise KeyError


@pytest.mark.parametrize(("publish", "stored"), [(_nested, 3), (_with_exchange, 1)])
def test_a_batch_that_fails_sends_nothing(proj: Proj, publish: Callable[[Producer], None], stored: int) -> None:
    """An exception inside the batch drops its delayed messages with the others; a next batch sends its own only."""
    with proj.connection() as connection:
        producer = connection.Producer()
        with pytest.raises(KeyError):
            _fail_in_batch(producer, publish)
        assert _stats(proj) == dict.fromkeys(QUEUES, (0, 0))
        with producer.batch():
            publish(producer)
        assert sum(delayed for delayed, _ in _stats(proj).values()) == stored
