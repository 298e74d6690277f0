"""Messages for plain kombu consumers, and where they are."""

import base64
import json
from contextlib import suppress
from time import monotonic
from typing import Any

import redis
from kombu import Connection, Queue
from kombu.serialization import loads

from tests.support.conditions import DEADLINE_S
from tests.support.workers import held as held_keys

JOBS = Queue("jobs")


def publish(connection: Connection, *bodies: Any, queue: str = "jobs", **properties: Any) -> None:
    """Publishes messages to a queue, in order."""
    producer = connection.Producer(routing_key=queue)
    for body in bodies:
        producer.publish(body, **properties)


def drain(connection: Connection, received: list[Any], count: int, timeout_s: float = DEADLINE_S) -> None:
    """Drains events until a list has got ``count`` entries; fails the test after ``timeout_s``."""
    deadline = monotonic() + timeout_s
    while len(received) < count:
        assert monotonic() < deadline, f"{len(received)} of {count}: {received}"
        with suppress(TimeoutError):
            connection.drain_events(timeout=1)


class Acked(list[Any]):
    """The bodies of messages, each of which is acknowledged when it comes."""

    def take(self, message: Any) -> None:
        """Takes a message; for ``on_message``."""
        self.append(message.payload)
        message.ack()


def drained(connection: Connection, count: int, queue: Queue = JOBS, **options: Any) -> list[Any]:
    """Receives and acknowledges ``count`` messages of a queue. Returns their bodies."""
    received: list[Any] = []

    def on_message(message: Any) -> None:
        received.append(message.payload)
        if not message.acknowledged:
            message.ack()

    with connection.Consumer(queue, on_message=on_message, **options):
        drain(connection, received, count)
    return received


def ready(client: redis.Redis, key: str = "jobs") -> list[Any]:
    """Returns the bodies of the messages in a list of a queue, the next one first."""
    return [_body(json.loads(raw)) for raw in reversed(client.lrange(key, 0, -1))]


def held(client: redis.Redis) -> int:
    """Counts the messages that consumers hold."""
    return held_keys.in_hand(client)


def none_held(client: redis.Redis) -> bool:
    """Whether no consumer holds a message, nor a note of one is left."""
    return not client.exists("unacked", "unacked_index")


def waiting(client: redis.Redis, queue: str = "celery") -> list[Any]:
    """Returns the last argument of each task in a queue, that of the next task first."""
    return [args[-1] for args, *_ in ready(client, queue)]


def in_hand(client: redis.Redis) -> list[Any]:
    """Returns the last argument of each task that workers hold."""
    return [_body(json.loads(raw)[0])[0][-1] for raw in client.hvals("unacked")]


def _body(message: dict[str, Any]) -> Any:
    return loads(base64.b64decode(message["body"]), message["content-type"], message["content-encoding"])
