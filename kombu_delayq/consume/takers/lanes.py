"""Takes messages for a channel where each queue has its own hash slot: with a taker for each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

import redis
from kombu.log import get_logger
from redis.exceptions import AskError, MovedError, RedisError

from kombu_delayq.connection import pools
from kombu_delayq.connection.slots import is_of_node
from kombu_delayq.consume.line import Line
from kombu_delayq.consume.takers.credit import Among, Credit
from kombu_delayq.consume.takers.taker import OTHER_CONNECTIONS, Taker
from kombu_delayq.consume.waiters import NO_ROOM, Room
from kombu_delayq.message.fields import Message
from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.types import Landing

logger = get_logger(__name__)

#: Pause after an error of a node, in s: the first, and the longest. Each is twice as long as the one before.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
#: How often a lane looks whether its queue is on another node, in s.
LOOK_S = 0.25
#: While the keys of a queue are on the node that its slot moves to, messages are looked for so often, in s; and for so
#: long before the lane looks whether the slot has moved.
APART_LOOK_S, APART_S = 0.25, 5.0


class Lane:
    """Takes messages of one queue. An error of a node of a cluster ends its connections, and no others.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
        queue: Name of the queue.
        lanes: The lanes of the channel.
    """

    def __init__(self, channel: Any, poller: Any, queue: str, lanes: "Lanes") -> None:
        self._pool: redis.ConnectionPool = channel.async_pool
        self._poller = poller
        self._queue = queue
        self._key = channel.store.taking.landing(Landing(queue, 0, ""))[0]
        self._retry_at = self._look_at = self._apart_until = 0.0
        self._pause_s = 0.0
        among = Among(queue, self._node, self._watch, lanes.credit, lanes.pause, lanes.room)
        self.taker = Taker(channel, poller, among)

    def turn(self) -> None:
        """Does what a taker does in a turn, unless it pauses after an error."""
        if monotonic() < self._retry_at:
            self.taker.note_turn()
            return
        with self.guarded():
            if monotonic() < self._apart_until:
                self._turn_apart()
            else:
                self._follow()
                self.taker.turn()

    def help(self, store: TransportStore, busy_s: float) -> None:
        """Helps the taker; another thread calls this now and then."""
        if self._is_late:
            self._poller.wake()
        self.taker.help(store, busy_s)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Lets the lane pause after an error of a node of a cluster. Other errors pass, and all those of callbacks."""
        try:
            yield
        except (RedisError, OSError) as error:
            is_own = error is not self.taker.deliveries.error
            if not (is_own and pools.has_nodes(self._pool) and is_of_node(error)):
                raise
            self._fail(error)

    def _turn_apart(self) -> None:
        """Takes messages by commands that follow ``ASK``, each of them a round trip."""
        if monotonic() >= self._look_at or self.taker.deliveries:
            self._look_at = monotonic() + APART_LOOK_S
            self.taker.turn_apart()
        self._poller.wake_in(APART_LOOK_S)

    def _node(self) -> redis.ConnectionPool:
        return pools.node_of(self._pool, self._key)

    def _watch(self, fd: int, line: Line) -> None:
        self._poller.watch(fd, _Reader(self, line))

    def read(self, line: Line) -> None:
        """Reads what has come over a connection."""
        with self.guarded():
            line.read()
            if self._pause_s:
                logger.info("messages of queue %r are taken again", self._queue)
                self._pause_s = 0.0

    def _follow(self) -> None:
        """Goes to the node that has the queue now, if it is another one."""
        now = monotonic()
        if now < self._look_at or not pools.has_nodes(self._pool):
            return
        self._look_at = now + LOOK_S
        if self._is_late:
            pools.look_again(self._pool)
        here = self._node()
        if any(line.pool not in (None, here) for line in self.taker.lines):
            logger.info("queue %r has moved to another node", self._queue)
            self.taker.drop()

    @property
    def _is_late(self) -> bool:
        return any(line.is_late for line in self.taker.lines)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, AskError) and not isinstance(error, MovedError):
            logger.debug("queue %r is moving to another node, and is taken from there", self._queue)
            self._apart_until, self._look_at = monotonic() + APART_S, 0.0
            self.taker.drop()
            self._poller.wake_in(0.0)
            return
        self._apart_until = 0.0
        if not self._pause_s:
            logger.warning(
                "messages of queue %r cannot be taken now, and are tried again: %s: %s",
                *(self._queue, type(error).__name__, error),
            )
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) or FIRST_PAUSE_S
        self._retry_at = monotonic() + self._pause_s
        self.taker.drop()
        self._poller.wake_in(self._pause_s)
        try:
            pools.look_again(self._pool)
        except (RedisError, OSError) as lost:
            logger.debug("no node of the cluster says which nodes there are: %s", lost)


class Lanes:
    """The lanes of a channel, which are used like a ``Taker``.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
    """

    def __init__(self, channel: Any, poller: Any) -> None:
        self._channel = channel
        self._poller = poller
        self._lanes: dict[str, Lane] = {}
        self._takers: list[Taker] = []
        self.credit = Credit(channel, poller, self._takers)
        options, most = channel.connection.client.transport_options, channel.options.max_waiters
        self._bound: int | None = options.get("max_connections")
        self.room = Room(most) if self._bound is None else Room(min(most, self._bound - 1), NO_ROOM)
        self.held: dict[str, str] = channel.consumer.held

    def begin(self, queue: str, *, no_ack: bool) -> None:
        """Takes messages of a queue from now on, too."""
        self._of(queue).taker.begin(queue, no_ack=no_ack)

    def end(self, queue: str) -> None:
        """Takes no further messages of a queue, and puts those back that have not been delivered."""
        lane = self._lanes.get(queue)
        if lane is not None:
            with lane.guarded():
                lane.taker.end(queue)

    def get(self, queue: str, *, no_ack: bool) -> Message | None:
        """Takes one message of a queue; None if there is none."""
        return self._of(queue).taker.get(queue, no_ack=no_ack)

    def turn(self) -> None:
        """Lets each lane do what there is to do, those first whose queues are served first."""
        names = [queue for queue in self._channel.active_queues if queue in self._lanes]
        if any(taker.is_eager for taker in self._takers):
            cycle = self._channel._queue_cycle
            names = [queue for queue in cycle.consume(len(names)) if queue in self._lanes]
        for queue in dict.fromkeys([*names, *self._lanes]):
            self._lanes[queue].turn()

    def deliver_one(self) -> bool:
        """Delivers the next message that was taken. Returns whether there was one."""
        for lane in list(self._lanes.values()):
            with lane.guarded():
                if lane.taker.deliver_one():
                    return True
        return False

    def ack(self, tag: str) -> None:
        """Acknowledges a message. If its node is away, that is done as soon as the node is there again."""
        queue = self.held.get(tag)
        if queue is not None:
            lane = self._of(queue)
            with lane.guarded():
                lane.taker.ack(tag)

    def pause(self) -> None:
        """Sees to it that no message comes to any lane."""
        for lane in list(self._lanes.values()):
            with lane.guarded():
                lane.taker.pause()

    def help(self, store: TransportStore) -> None:
        """Does for takers whose thread is busy what cannot wait; another thread calls this now and then."""
        busy_s = max((taker.deliveries.busy_s for taker in self._takers), default=0.0)
        self._each(lambda lane: lane.help(store, busy_s))

    def close(self) -> None:
        """Puts back what has not been delivered, and sends what is left to send."""
        self._each(lambda lane: lane.taker.close())

    def lose(self, connection: Any) -> None:
        """Takes note that a connection has ended."""
        for taker in self._takers:
            taker.lose(connection)

    def drop(self) -> None:
        """Closes all connections."""
        for taker in self._takers:
            taker.drop()

    def _of(self, queue: str) -> Lane:
        if queue not in self._lanes:
            lane = self._lanes[queue] = Lane(self._channel, self._poller, queue, self)
            self._takers.append(lane.taker)
            pool, most = self._channel.async_pool, self._channel.options.max_waiters + OTHER_CONNECTIONS
            # A bound of the user's is for one queue. Each other one has one more connection that does not wait.
            pools.make_room(pool, len(self._takers) - 1 + (most if self._bound is None else self._bound))
        return self._lanes[queue]

    def _each(self, act: Callable[[Lane], object]) -> None:
        """Does something for each lane. Raises the first error after all."""
        failed: Exception | None = None
        for lane in list(self._lanes.values()):
            try:
                act(lane)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


class _Reader:
    """Reads a connection of a lane for the poller."""

    def __init__(self, lane: Lane, line: Line) -> None:
        self.read = partial(lane.read, line)
