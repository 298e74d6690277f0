"""Consumers of a store: they live, take messages of the queue ``q``, and hold them."""

from typing import Any

from kombu import Connection
from kombu.transport import redis as stock

from kombu_delayq.message.fields import Message
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Fetched, InFlight, Request
from tests.support.store.keyspace import KEYS

#: Names of consumers.
ME, OTHER = "host:1:00000000", "host:2:ffffffff"

#: Keys of what consumers of ``q`` hold in a Redis Cluster.
_GROUP = KEYS.slot_group("q")
CONSUMERS, CONSUMED = KEYS.consumers(_GROUP), KEYS.consumed(_GROUP)
INDEX, UNACKED = KEYS.unacked_index(_GROUP), KEYS.unacked(_GROUP)


def lives(store: DelayStore, *names: str, queues: tuple[str, ...] = ("q",)) -> None:
    """Gives consumers a lease."""
    store.consumers.note_queues(queues)
    for group in dict.fromkeys(map(store.keys.slot_group, queues)):
        of_group = [queue for queue in queues if store.keys.slot_group(queue) == group]
        for name in names or (ME,):
            assert store.consumers.heartbeat(name, of_group, is_new=True)


def end_lease(store: DelayStore, name: str = ME) -> None:
    """Lets the lease of a consumer end a second ago."""
    keys = [store.keys.consumers(group) for group in store.consumers.slot_groups()]
    assert sum(store.client.zadd(key, {name: store.now_ms() - 1000}, xx=True, ch=True) for key in keys)


def fetch(store: DelayStore, most: int = 8, *queues: str, name: str = ME, first: int = 1, **how: Any) -> list[Fetched]:
    """Takes messages, by default of ``q``; keywords as in ``Request``."""
    if store.keys.groups is None:  # one request may be for several queues
        return store.fetching.fetch(Request(name, first, most, queues or ("q",), **how))
    found: list[Fetched] = []
    for queue in queues or ("q",):
        found += store.fetching.fetch(Request(name, first + len(found), most - len(found), (queue,), **how))
    return found


def land(store: DelayStore, in_flight: InFlight) -> bool:
    """Moves a message into an in-flight list, as a consumer does that waits. Returns whether there was one."""
    return store.client.lmove(*store.fetching.in_flight_keys(in_flight), "RIGHT", "LEFT") is not None


def message(number: object = 1, priority: int = 0, **properties: Any) -> Message:
    """Makes a message as kombu's own channels do."""
    return {
        "body": f"body {number}",
        "content-type": "text/plain",
        "content-encoding": "utf-8",
        "headers": {"number": number},
        "properties": {
            "delivery_tag": f"tag of {number}",
            "delivery_info": {"exchange": "orders", "routing_key": "orders.eu"},
            "priority": priority,
            **properties,
        },
    }


def stock_channel(store: DelayStore, **options: Any) -> stock.Channel:
    """Connects stock kombu to the database of a store. The caller closes ``channel.connection.client``."""
    port = store.client.connection_pool.connection_kwargs["port"]
    connection = Connection(f"redis://127.0.0.1:{port}/0", transport_options=options)
    return connection.default_channel
