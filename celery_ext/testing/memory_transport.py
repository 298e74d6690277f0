"""A kombu transport over the broker in memory: kombu's own, except that delayed messages wait in a store."""

import json
from queue import Queue
from typing import Any
from weakref import WeakValueDictionary

from kombu.transport import memory as stock
from kombu.transport import virtual
from kombu.transport.redis import Channel as RedisChannel

from celery_ext.testing.memory_store import MemoryStore
from celery_ext.testing.sending import Clock
from kombu_delayq import hooks, options
from kombu_delayq.channel import OfferingChannel
from kombu_delayq.message import CHAIN_ID, DEAD_LETTER, Message, due_of, once, to_json
from kombu_delayq.options import Options
from kombu_delayq.store import Keys, Waiting

#: The brokers of this process by name. Each lives for as long as the test that uses it.
_brokers: "WeakValueDictionary[str, MemoryBroker]" = WeakValueDictionary()

_Queues = dict[str, "Queue[Any]"]


class MemoryBroker:
    """A broker of this process.

    Args:
        name: Its name, the host of its URL.
        clock: The clock of the test.
        shared: Whether its queues are those of kombu's own transport for memory, so that a worker with the URL
            ``memory://`` consumes them.
    """

    def __init__(self, name: str, clock: Clock, *, shared: bool = False) -> None:
        self.name, self.clock = name, clock
        self.queues: _Queues = stock.Channel.queues if shared else {}
        self.state = stock.Transport.global_state if shared else virtual.BrokerState()
        self.store = MemoryStore(Options(), clock.now_ms, self._push, self._ready, self._take)
        _brokers[name] = self

    def _push(self, message: Waiting) -> None:
        self.queues.setdefault(message.queue, Queue()).put(json.loads(message.body or b"{}"))

    def _ready(self, queue: str) -> list[bytes]:
        return [to_json(message).encode() for message in self.queues[queue].queue] if queue in self.queues else []

    def _take(self, queue: str, message: bytes) -> bool:
        found = self.queues.get(queue, Queue())
        with found.mutex:
            if message not in (ready := self._ready(queue)):
                return False
            del found.queue[ready.index(message)]
            return True


class Channel(OfferingChannel, stock.Channel):
    """A channel of :class:`Transport`."""

    key_names = Keys()

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        self.queues = connection.broker.queues
        super().__init__(connection, **kwargs)

    @property
    def options(self) -> Options:
        """The transport options."""
        found: Options = self.connection.options
        return found

    @property
    def store(self) -> MemoryStore:
        """The delayed messages."""
        found: MemoryStore = self.connection.broker.store
        return found

    def _put(self, queue: str, message: Message, **kwargs: Any) -> None:
        due = due_of(message)
        properties = message["properties"]
        if CHAIN_ID in properties:
            return self._put_step(queue, message, due)
        hooks.check_unread(properties)
        if DEAD_LETTER in properties:
            self.store.queues.note_dead_letters(queue)
        mode, message = once.read_mode(message)
        if mode is not None:
            return self.put_once(queue, message, due, mode)
        if due is None or not (due.relative or due.ms > self.store.now_ms()):
            super()._put(queue, message, **kwargs)
        else:
            self._check_delay(due)
            self.store.delivery.offer(queue, self.offer_of(message, due))
        return None

    def _purge(self, queue: str) -> int:
        return int(super()._purge(queue)) + self.store.queues.purge(queue)

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        super()._delete(queue, *args, **kwargs)
        self.store.queues.delete(queue)

    def close(self) -> None:
        """Closes the channel. The messages stay."""
        queues = self.queues
        super().close()
        self.queues = queues


class Transport(stock.Transport):
    """A connection to the :class:`MemoryBroker` that the host of its URL names."""

    Channel = Channel

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.broker = _brokers[client.hostname]
        self.state = self.broker.state
        # Options of Redis mean nothing here, and are no mistake.
        self.options, _ = options.parse(client.transport_options, RedisChannel.from_transport_options)
        if client.transport_options:  # the test's own connection has none
            self.broker.store.options = self.options
