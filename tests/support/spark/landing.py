"""Where messages end up on a real broker, sent by Celery or by a Spark job."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from kombu import Connection, Queue

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.batch import BatchMessages
from celery_ext.spark.write.sender import Sender
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.store.jobs import begun
from tests.support.workers.harness import TRANSPORT


class Landed(NamedTuple):
    """A message that has arrived.

    Attributes:
        place: Key of the list that has it, or the queue for which it is delayed.
        due_ms: When it is due, ms since the epoch; None in a list.
        message: The message, parsed.
    """

    place: str
    due_ms: float | None
    message: dict[str, Any]


@contextmanager
def open_store(server: PrivateRedis, **options: Any) -> Iterator[DelayStore]:
    """Opens the store of a broker as our transport does."""
    with Connection(server.url, transport=TRANSPORT, transport_options=options) as connection:
        yield connection.default_channel.store


def landed(server: PrivateRedis) -> list[Landed]:
    """Returns all messages on a broker."""
    client = server.client()
    found = []
    for key in sorted(client.scan_iter(_type="list")):
        if not key.startswith("delayq:"):
            found += [Landed(key, None, json.loads(text)) for text in client.lrange(key, 0, -1)]
    with open_store(server) as store:
        for queue in sorted(client.smembers("{delayq}:queues")):
            waiting = by_id.browse(store, queue)
            found += [Landed(message.queue, message.due_ms, json.loads(message.body or b"")) for message in waiting]
    return found


def published(
    server: PrivateRedis, transport: str, queues: Iterable[Queue], publish: Callable[[Connection], Any]
) -> Landed:
    """Publishes a message through a transport, and returns where it goes. ``redis`` is the stock transport.

    Args:
        server: The broker.
        transport: Name of the transport in kombu.
        queues: Queues that workers have declared.
        publish: The call; takes a connection.
    """
    server.client().flushall()
    with Connection(server.url, transport=transport) as connection:
        for queue in queues:
            queue.bind(connection.default_channel).declare()
        publish(connection)
    [found] = landed(server)
    return found


def sent(server: PrivateRedis, made: BatchMessages, options: WriteOptions) -> Landed:
    """Returns where the only message of a batch goes when a Spark task sends it."""
    server.client().flushall()
    with open_store(server) as store:
        send(store, made.offers, options)
    [found] = landed(server)
    return found


def send(store: DelayStore, offers: Mapping[str, Sequence[Offer]], options: WriteOptions, name: str = "j") -> None:
    """Sends messages as the only Spark task of a job does."""
    sender = Sender(store, begun(store, name), options)
    for queue, of_queue in offers.items():
        sender.add(queue, of_queue)
    sender.flush()
