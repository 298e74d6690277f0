"""A consumer in an event loop, turned by the test itself."""

from collections.abc import Callable
from time import monotonic
from typing import Any, Self

from kombu import Connection, Consumer, Exchange, Queue
from kombu.asynchronous.hub import Hub

from kombu_delayq.store import DelayStore


class Looped:
    """Consumes queues in an event loop that turns only in ``turn`` and ``until``.

    Args:
        connection: A connection that no other consumer uses. This class closes it.
        queues: Names of the queues.
        prefetch: The most messages in hand, 0 for no limit.
        acks: Whether to acknowledge each message at once.
        on_message: Called with each message, before it is acknowledged.
    """

    def __init__(
        self,
        connection: Connection,
        *queues: str,
        prefetch: int = 0,
        acks: bool = True,
        on_message: Callable[[Any], object] = bool,
        no_ack: bool = False,
    ) -> None:
        self.connection = connection
        self.received: list[Any] = []
        self.messages: list[Any] = []
        self._acks = acks and not no_ack
        self._on_message = on_message
        declared = [queue_of(name) for name in queues]
        self.hub = Hub()
        self.consumer = Consumer(
            connection, declared, on_message=self._receive, prefetch_count=prefetch or None, no_ack=no_ack
        )

    @property
    def channel(self) -> Any:
        """The channel."""
        return self.consumer.channel

    @property
    def store(self) -> DelayStore:
        """The store of the channel."""
        store: DelayStore = self.channel.store
        return store

    def __enter__(self) -> Self:
        self.consumer.consume()
        self.connection.register_with_event_loop(self.hub)
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.release()
        self.hub.close()

    def turn(self) -> None:
        """Lets the loop turn once, as it does in a worker: timers, ticks, and what has come."""
        self.send()
        for fd, _ in self.hub.poller.poll(0.02) or ():
            if fd in self.hub.readers:
                callback, args = self.hub.readers[fd]
                callback(*args)

    def send(self) -> None:
        """Does the first half of a turn, in which the consumer sends, and does not read what comes."""
        self.hub.fire_timers()
        for tick in list(self.hub.on_tick):
            tick()

    def until(self, condition: Callable[[], object], what: str = "", timeout_s: float = 30.0) -> None:
        """Lets the loop turn until the condition is true."""
        deadline = monotonic() + timeout_s
        while not condition():
            assert monotonic() < deadline, f"not within {timeout_s} s: {what}; received {self.received}"
            self.turn()

    def waits_for(self, *queues: str) -> Callable[[], bool]:
        """Returns a condition: Redis knows that the consumer waits for messages of so many lists."""
        client = self.channel.store.client
        return lambda: (
            sum(each["cmd"] == "blmove" and "b" in each["flags"] for each in client.client_list()) == len(queues)
        )

    def _receive(self, message: Any) -> None:
        self.received.append(message.payload)
        self.messages.append(message)
        self._on_message(message)
        if self._acks:
            message.ack()


def queue_of(name: str) -> Queue:
    """Returns the declaration of a queue that is bound to the default exchange."""
    return Queue(name, Exchange(""), name)


def publish(connection: Connection, queue: str, *bodies: Any, **options: Any) -> None:
    """Publishes messages to a queue."""
    for body in bodies:
        connection.Producer().publish(body, routing_key=queue, declare=[queue_of(queue)], **options)
