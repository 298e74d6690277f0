"""Publishing and consuming over the nodes of a cluster."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer, Exchange, Queue

from celery_ext import install
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.publish.write import Writer
from kombu_delayq import InvalidBrokerURL
from tests.support.conditions import DEADLINE_S
from tests.support.servers.cluster import PrivateCluster

TASKS = Exchange("tasks", "direct")
#: Queues on three nodes.
QUEUES = [Queue(name, TASKS, routing_key=name) for name in ("a", "b", "c", "{a}b")]


def consume(connection: Connection, queues: list[Queue], count: int, seconds: float = DEADLINE_S) -> list[Any]:
    """Returns the bodies of so many messages."""
    got: list[Any] = []

    def note(body: Any, message: Any) -> None:
        got.append(body if isinstance(body, str) else "later")  # a task of Celery's
        message.ack()

    with Consumer(connection.channel(), queues, callbacks=[note], accept=["json"]):
        end = time.monotonic() + seconds
        while len(got) < count and time.monotonic() < end:
            try:
                connection.drain_events(timeout=0.5)
            except TimeoutError:
                continue
    return got


def publish(connection: Connection, **options: Any) -> list[str]:
    """Publishes one message to each queue. Returns their bodies."""
    producer = connection.Producer(serializer="json")
    for queue in QUEUES:
        producer.publish(queue.name, exchange=TASKS, routing_key=queue.name, declare=[queue], **options)
    return [queue.name for queue in QUEUES]


@pytest.mark.journey
@pytest.mark.parametrize("options", [{}, {"global_keyprefix": "app:"}])
def test_delivers_from_all_nodes(cluster: PrivateCluster, options: dict[str, Any]) -> None:
    """Messages of several queues and priorities, some of them delayed, over one connection."""
    with Connection(cluster.url, transport_options=options) as connection:
        sent = publish(connection) + publish(connection, priority=9)
        with Celery(broker=cluster.url, set_as_current=False) as app:
            app.conf.broker_transport_options = options
            for name in ("a", "b", "c"):
                app.send_task("later", queue=name, countdown=0.5)
                sent.append("later")
        with connection.clone() as other:
            assert sorted(consume(other, QUEUES, len(sent))) == sorted(sent)


def test_sends_a_batch(cluster: PrivateCluster) -> None:
    """A batch of kombu 5.7 goes to all nodes at once, delayed messages too."""
    with Connection(cluster.url) as connection:
        for queue in QUEUES:
            queue(connection).declare()
        producer = connection.Producer(serializer="json")
        if not hasattr(producer, "batch"):
            pytest.skip("kombu before 5.7 has no batches")
        eta = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
        with producer.batch():
            for queue in QUEUES:
                producer.publish(queue.name, exchange=TASKS, routing_key=queue.name)
                headers = {"task": "later", "id": queue.name, "eta": eta}
                producer.publish(queue.name, exchange=TASKS, routing_key=queue.name, headers=headers)
        assert sorted(consume(connection, QUEUES, 2 * len(QUEUES))) == sorted(2 * [queue.name for queue in QUEUES])


def test_sees_a_binding_of_another_process_at_once(cluster: PrivateCluster) -> None:
    """What a publisher has found out about an exchange a moment ago does not hide a queue that was bound since."""
    with Connection(cluster.url) as connection, Connection(cluster.url) as other:
        QUEUES[0](connection).declare()
        producer = connection.Producer(serializer="json")
        producer.publish("1", exchange=TASKS, routing_key="a", declare=[TASKS])
        QUEUES[1](other).declare()
        producer.publish("2", exchange=TASKS, routing_key="b")
        assert sorted(consume(other, QUEUES[:2], 2)) == ["1", "2"]


def test_says_what_to_write_for_one_server() -> None:
    """A server that is in no cluster is refused at the first connection."""
    with PrivateRedis(slots=False) as server:
        address = f"127.0.0.1:{server.port}"
        with Connection(f"delayq+cluster://{address}") as connection, pytest.raises(InvalidBrokerURL, match=address):
            connection.connect()


def test_calls_are_published_fast(cluster: PrivateCluster) -> None:
    """With ``fast_publish`` calls go to the nodes of their queues, with and without a delay."""
    with Celery("fast", broker=cluster.url, set_as_current=False) as app:
        install(app, fast_publish=True)
        for countdown in (None, 600):
            for queue in ("a", "b", "c"):
                for _ in range(4):
                    app.send_task("some.task", queue=queue, countdown=countdown)
        recipes = app.send_task.fast._noted().recipes
        assert len(recipes) == 3
        assert all(isinstance(recipe, Writer) for recipe in recipes.values())
        with app.connection_for_write() as connection:
            store = connection.default_channel.store
            for queue in ("a", "b", "c"):
                assert store.queues.size(queue) == 4
                assert connection.default_channel._size(queue) >= 4
