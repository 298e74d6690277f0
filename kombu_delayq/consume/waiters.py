"""Waits for messages of empty queues: each wait blocks on a connection of its own, and gets one message."""

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any

import redis
from kombu.log import get_logger
from redis.exceptions import NoPermissionError, OutOfMemoryError

from kombu_delayq.connection.text import Command
from kombu_delayq.consume.line import Line
from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.types import Landing

logger = get_logger(__name__)

#: Redis ends a wait after so long, in s, at the latest; a lease of a consumer is several times longer.
LONGEST_WAIT_S, SHARE_OF_LEASE = 10.0, 1 / 6

#: For how long a full Redis is not asked to wait, in s. The consumer looks at its queues every second meanwhile.
FULL_S = 5.0

#: Why there are few waits where the user bounds connections.
NO_ROOM = "the transport option max_connections leaves no room for more waiting connections"

#: A list of a queue: its name, and the number of the list as in ``Keys.ready``.
Place = tuple[str, int]


class Waiter:
    """Waits for a message of one list.

    Attributes:
        landing: Where the message will be.
        client_id: Number of the connection, by which another one can end the wait.
        is_blocked: Whether the reply to the wait has not come. Until then a message may come to the landing list.
        is_ending: Whether another connection has ended the wait, so that no message comes any more.
    """

    def __init__(self, line: Line, landing: Landing) -> None:
        self.line = line
        self.landing = landing
        self.client_id = 0
        self.is_blocked = False
        self.is_ending = False

    def open(self) -> None:
        """Connects, unless it is connected."""
        if self.line.open():
            self.client_id = int(self.line.ask("CLIENT", "ID"))


class Room:
    """Counts the connections of a channel that wait for messages.

    Args:
        most: The most of them at a time.
        reason: Why there are not as many as the option ``max_waiters`` says, if so, for the log.
    """

    def __init__(self, most: int, reason: str = "") -> None:
        self._left = most
        self._reason = reason

    def take(self) -> bool:
        """Counts one more, if there is room for it. Returns whether there is."""
        if self._left <= 0:
            reason, self._reason = self._reason, ""
            if reason:
                _warn(reason)
            return False
        self._left -= 1
        return True

    def give(self) -> None:
        """Counts one less."""
        self._left += 1


class Waiters:
    """The waits of one channel, or of one queue in a cluster.

    Args:
        new_line: Makes a connection.
        room: Counts the connections.
        on_wake: Called when a message has come to a landing list.
    """

    def __init__(self, new_line: Callable[[], Line], room: Room, on_wake: Callable[[Landing], None]) -> None:
        self._new_line = new_line
        self._room = room
        self._on_wake = on_wake
        self._waiters: dict[Place, Waiter] = {}
        self._is_refused = False
        self._full_until = -inf

    @property
    def places(self) -> set[Place]:
        """The lists whose messages wake the consumer."""
        return {place for place, waiter in self._waiters.items() if waiter.is_blocked}

    @property
    def lines(self) -> list[Line]:
        """Their connections."""
        return [waiter.line for waiter in list(self._waiters.values())]

    def blocked(self, queue: str | None = None) -> list[Waiter]:
        """Returns the waiters to whom messages may come, of one queue or of all."""
        return [
            waiter
            for place, waiter in list(self._waiters.items())
            if waiter.is_blocked and not waiter.is_ending and queue in (None, place[0])
        ]

    def wait(self, store: TransportStore, consumer: str, places: Iterable[Place]) -> None:
        """Waits for messages of these lists, as far as there are connections for them.

        Args:
            store: The store of the broker.
            consumer: Name of the consumer.
            places: The lists.
        """
        if monotonic() < self._full_until:
            return
        longest_s = min(LONGEST_WAIT_S, store.options.consumer_ttl * SHARE_OF_LEASE)
        for place in places:
            waiter = self._waiters.get(place) or self._new_waiter(place, consumer)
            if waiter is None or waiter.is_blocked:
                continue
            waiter.open()
            waiter.landing = Landing(*place, consumer)
            ready, landing = store.taking.landing(waiter.landing)
            command = ("BLMOVE", ready, landing, "RIGHT", "LEFT", longest_s)
            waiter.line.send([command], self._waker(waiter), longest_s)
            waiter.is_blocked, waiter.is_ending = True, False

    def end(self) -> list[Command]:
        """Returns the commands that end all waits. The reply to a wait comes all the same.

        The caller sends them before the command that empties the landing lists.
        """
        commands: list[Command] = []
        for waiter in self.blocked():
            waiter.is_ending = True
            commands.append(("CLIENT", "UNBLOCK", waiter.client_id))
        return commands

    def check(self) -> None:
        """Raises an error when the reply to a wait is overdue."""
        for waiter in list(self._waiters.values()):
            waiter.line.check()

    def lose(self, connection: Any) -> None:
        """Takes note that a connection has ended. A message may have come over it."""
        for waiter in list(self._waiters.values()):
            if waiter.line.lose(connection):
                waiter.is_blocked = False
                self._on_wake(waiter.landing)

    def keep(self, queues: Iterable[str]) -> None:
        """Closes the connections for all queues but these, none of which is blocked."""
        for place in [place for place in self._waiters if place[0] not in queues]:
            self._waiters.pop(place).line.close()
            self._room.give()

    def close(self) -> None:
        """Closes all connections."""
        self.keep(())

    def _new_waiter(self, place: Place, consumer: str) -> Waiter | None:
        if self._is_refused or not self._room.take():
            return None
        line = self._new_line()
        waiter = Waiter(line, Landing(*place, consumer))
        try:
            waiter.open()
        except redis.ResponseError as error:
            if isinstance(error, OSError):
                self._room.give()
                raise
            self._refuse(line, f"Redis refuses what it takes to wait for messages ({error})")
            return None
        except redis.ConnectionError as error:
            if "Too many connections" not in str(error) and type(error).__name__ != "MaxConnectionsError":
                line.close()
                self._room.give()
                raise
            self._refuse(line, NO_ROOM)
            return None
        self._waiters[place] = waiter
        return waiter

    def _refuse(self, line: Line, reason: str) -> None:
        line.close()
        self._room.give()
        self._is_refused = True
        _warn(reason)

    def _waker(self, waiter: Waiter) -> Callable[[list[Any]], None]:
        def wake(replies: list[Any]) -> None:
            waiter.is_blocked = False
            [reply] = replies
            if isinstance(reply, NoPermissionError):
                self._refuse(waiter.line, f"Redis refuses what it takes to wait for messages ({reply})")
                self._waiters.pop((waiter.landing.queue, waiter.landing.step), None)
            elif isinstance(reply, OutOfMemoryError):
                self._full_until = monotonic() + FULL_S  # Redis takes no wait, but gives messages
            elif isinstance(reply, Exception):
                raise reply
            elif reply is not None:
                self._on_wake(waiter.landing)

        return wake


def _warn(reason: str) -> None:
    logger.warning("%s: messages of some queues are looked for every second only", reason)
