"""Fetches messages for a channel of a Redis Cluster, with a fetcher for each queue, because each is in its own slot."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from kombu.log import get_logger
from redis.exceptions import AskError, MovedError, RedisError

from kombu_delayq.cluster.pool import NodePools
from kombu_delayq.consume import (
    MOST_WAITS,
    NO_CONNECTION_LEFT,
    OTHER_CONNECTIONS,
    Credit,
    Fetcher,
    PipelinedConnection,
    WaitBudget,
)
from kombu_delayq.message import Message
from kombu_delayq.redis import Backoff, make_room, pool_of
from kombu_delayq.store import InFlight

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: Pause after an error of a node, in s: the first, and the longest.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
#: How often a queue fetcher looks whether its queue is on another node, in s.
LOOK_S = 0.25
#: While the keys of a queue are on the node that its slot moves to, messages are looked for so often, in s; and for so
#: long before the queue fetcher looks whether the slot has moved.
APART_LOOK_S, APART_S = 0.25, 5.0


class QueueFetcher:
    """Fetches messages of one queue. An error of a node of a cluster ends its connections, and no others.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
        queue: Name of the queue.
        of_channel: All queue fetchers of the channel.
    """

    def __init__(self, channel: Any, poller: Any, queue: str, of_channel: "QueueFetchers") -> None:
        self._pool: redis.ConnectionPool = channel.async_pool
        self._poller = poller
        self._queue = queue
        self._key = channel.store.fetching.in_flight_keys(InFlight(queue, 0, ""))[0]
        self._retry_at = self._look_at = self._apart_until = 0.0
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._has_failed = False
        self.fetcher = Fetcher(channel, poller, of_channel.credit, queue, self._node, self._watch)

    def turn(self) -> None:
        """Does what the fetcher does in a turn, unless it pauses after an error."""
        if monotonic() < self._retry_at:
            self.fetcher.note_turn()
            return
        with self.guarded():
            if monotonic() < self._apart_until:
                self._turn_apart()
            else:
                self._follow()
                self.fetcher.turn()

    def help(self, store: "DelayStore", busy_s: float) -> None:
        """Helps the fetcher; another thread calls this now and then."""
        if self._is_late:
            self._poller.wake()
        self.fetcher.help(store, busy_s)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Pauses after an error of a node of a cluster. Other errors pass, and all those of callbacks."""
        try:
            yield
        except (RedisError, OSError) as error:
            is_own = not self.fetcher.has_raised(error)
            if not (is_own and pool_of(self._pool).is_partial(error)):
                raise
            self._fail(error)

    def _turn_apart(self) -> None:
        """Fetches messages by commands that follow ``ASK``, each of them a round trip."""
        if monotonic() >= self._look_at or self.fetcher.deliveries:
            self._look_at = monotonic() + APART_LOOK_S
            self.fetcher.turn_apart()
        self._poller.wake_in(APART_LOOK_S)

    def _node(self) -> redis.ConnectionPool:
        return pool_of(self._pool).node_of(self._key)

    def _watch(self, fd: int, connection: PipelinedConnection) -> None:
        self._poller.watch(fd, _Reader(self, connection))

    def read(self, connection: PipelinedConnection) -> None:
        """Reads what has come over a connection."""
        with self.guarded():
            connection.read()
            if self._has_failed:
                logger.info("messages of queue %r are taken again", self._queue)
                self._has_failed = False
                self._backoff.succeeded()

    def _follow(self) -> None:
        """Goes to the node that has the queue now, if it is another one."""
        now = monotonic()
        if now < self._look_at or not isinstance(self._pool, NodePools):
            return
        self._look_at = now + LOOK_S
        if self._is_late:
            self._pool.refresh()
        here = self._node()
        if any(connection.pool not in (None, here) for connection in self.fetcher.connections):
            logger.info("queue %r has moved to another node", self._queue)
            self.fetcher.drop()

    @property
    def _is_late(self) -> bool:
        return any(connection.is_late for connection in self.fetcher.connections)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, AskError) and not isinstance(error, MovedError):
            logger.debug("queue %r is moving to another node, and is taken from there", self._queue)
            self._apart_until, self._look_at = monotonic() + APART_S, 0.0
            self.fetcher.drop()
            self._poller.wake_in(0.0)
            return
        self._apart_until = 0.0
        if not self._has_failed:
            logger.warning(
                "messages of queue %r cannot be taken now, and are tried again: %s: %s",
                self._queue,
                type(error).__name__,
                error,
            )
        self._has_failed, pause_s = True, self._backoff.failed()
        self._retry_at = monotonic() + pause_s
        self.fetcher.drop()
        self._poller.wake_in(pause_s)
        try:
            if isinstance(self._pool, NodePools):
                self._pool.refresh()
        except (RedisError, OSError) as lost:
            logger.debug("no node of the cluster says which nodes there are: %s", lost)


class QueueFetchers:
    """The queue fetchers of a channel, which are used like one ``Fetcher``.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
    """

    def __init__(self, channel: Any, poller: Any) -> None:
        self._channel = channel
        self._poller = poller
        self._by_queue: dict[str, QueueFetcher] = {}
        self._fetchers: list[Fetcher] = []
        self._bound: int | None = channel.connection.client.transport_options.get("max_connections")
        budget = WaitBudget(MOST_WAITS)
        if self._bound is not None:
            budget = WaitBudget(min(MOST_WAITS, self._bound - 1), NO_CONNECTION_LEFT)
        self.credit = Credit(channel, poller, self._fetchers, budget, self.pause)
        self.held: dict[str, str] = channel.consumer.held
        self.going_on: set[str] = channel.consumer.going_on

    def begin(self, queue: str, *, no_ack: bool) -> None:
        """Fetches messages of a queue from now on, too."""
        self._of(queue).fetcher.begin(queue, no_ack=no_ack)

    def end(self, queue: str) -> None:
        """Fetches no further messages of a queue, and puts those back that have not been delivered."""
        queue_fetcher = self._by_queue.get(queue)
        if queue_fetcher is not None:
            with queue_fetcher.guarded():
                queue_fetcher.fetcher.end(queue)

    def has_raised(self, error: BaseException) -> bool:
        """Whether an error is that of a callback, so that a message was not taken."""
        return any(fetcher.has_raised(error) for fetcher in self._fetchers)

    def get(self, queue: str, *, no_ack: bool) -> Message | None:
        """Fetches one message of a queue; None if there is none."""
        return self._of(queue).fetcher.get(queue, no_ack=no_ack)

    def turn(self) -> None:
        """Lets each queue fetcher do what there is to do, those first whose queues are served first."""
        names = [queue for queue in self._channel.active_queues if queue in self._by_queue]
        if any(fetcher.is_eager for fetcher in self._fetchers):
            cycle = self._channel._queue_cycle
            names = [queue for queue in cycle.consume(len(names)) if queue in self._by_queue]
        for queue in dict.fromkeys([*names, *self._by_queue]):
            self._by_queue[queue].turn()

    def deliver_one(self) -> bool:
        """Delivers the next message that was fetched. Returns whether there was one."""
        for queue_fetcher in list(self._by_queue.values()):
            with queue_fetcher.guarded():
                if queue_fetcher.fetcher.deliver_one():
                    return True
        return False

    def ack(self, tag: str) -> None:
        """Acknowledges a message. If its node is away, that is done as soon as the node is there again."""
        queue = self.held.get(tag)
        if queue is not None:
            queue_fetcher = self._of(queue)
            with queue_fetcher.guarded():
                queue_fetcher.fetcher.ack(tag)

    def wake(self) -> None:
        """Lets each queue fetcher ask once more for messages. Any thread may call this."""
        for fetcher in list(self._fetchers):
            fetcher.wake()

    def note_free(self) -> None:
        """Notes that a process of the consumer is free. Any thread may call this."""
        for fetcher in list(self._fetchers):
            fetcher.note_free()

    def excuse(self, tag: str) -> None:
        """Notes that a script has removed a message, which an acknowledgement under way does not find."""
        if (queue := self.held.get(tag)) is not None:
            self._of(queue).fetcher.excuse(tag)

    def acks_later(self, tag: str) -> bool:
        """Whether ``ack`` of a message only notes it, so that the thread that consumes may do so in any callback."""
        queue = self.held.get(tag)
        return queue is not None and self._poller.is_own_thread and self._of(queue).fetcher.acks_later(tag)

    def pause(self) -> None:
        """Lets no message come to any queue fetcher."""
        for queue_fetcher in list(self._by_queue.values()):
            with queue_fetcher.guarded():
                queue_fetcher.fetcher.pause()

    def help(self, store: "DelayStore") -> None:
        """Does for fetchers whose thread is busy what cannot wait; another thread calls this now and then."""
        busy_s = max((fetcher.deliveries.busy_s for fetcher in self._fetchers), default=0.0)
        self._each(lambda queue_fetcher: queue_fetcher.help(store, busy_s))

    def close(self) -> None:
        """Puts back what has not been delivered, and sends what is left to send."""
        self._each(lambda queue_fetcher: queue_fetcher.fetcher.close())

    def lose(self, connection: Any) -> None:
        """Learns that a connection has ended."""
        for fetcher in self._fetchers:
            fetcher.lose(connection)

    def drop(self, *, for_good: bool = False) -> None:
        """Closes all connections. If that is ``for_good``, the heartbeat does what is left to do."""
        for fetcher in self._fetchers:
            fetcher.drop(for_good=for_good)

    def _of(self, queue: str) -> QueueFetcher:
        if queue not in self._by_queue:
            queue_fetcher = self._by_queue[queue] = QueueFetcher(self._channel, self._poller, queue, self)
            self._fetchers.append(queue_fetcher.fetcher)
            most = MOST_WAITS + OTHER_CONNECTIONS if self._bound is None else self._bound
            # A bound of the user's is for one queue. Each other one has one more connection that does not wait.
            make_room(self._channel.async_pool, len(self._fetchers) - 1 + most)
        return self._by_queue[queue]

    def _each(self, act: Callable[[QueueFetcher], object]) -> None:
        """Does something for each queue. Raises the first error after all."""
        failed: Exception | None = None
        for queue_fetcher in list(self._by_queue.values()):
            try:
                act(queue_fetcher)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


class _Reader:
    """Reads a connection of a queue fetcher for the poller."""

    def __init__(self, queue_fetcher: QueueFetcher, connection: PipelinedConnection) -> None:
        self.read = partial(queue_fetcher.read, connection)
