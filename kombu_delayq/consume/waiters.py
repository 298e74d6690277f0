"""Waits for messages of empty queues: each wait blocks on a connection of its own, and gets one message."""

from collections.abc import Callable, Collection, Iterable
from math import inf
from time import monotonic
from typing import Any

import redis
from kombu.log import get_logger
from redis.exceptions import NoPermissionError, OutOfMemoryError

from kombu_delayq.connection.replies import PASSING_S, passes
from kombu_delayq.connection.text import Command
from kombu_delayq.consume.line import Line
from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.types import Landing

logger = get_logger(__name__)

#: Redis ends a wait after so long, in s, at the latest; a lease of a consumer is several times longer.
LONGEST_WAIT_S, SHARE_OF_LEASE = 10.0, 1 / 6

#: A wait is so short, in s, where Redis refuses to end one; and how much later its end may be noticed.
SHORT_WAIT_S, NOTICED_S = 1.0, 0.5

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
        over_at: When the wait has ended by itself at the latest, in s of ``monotonic``.
        is_emptied: Whether its landing list has been emptied after that, although the reply was not read.
    """

    def __init__(self, line: Line, landing: Landing) -> None:
        self.line = line
        self.landing = landing
        self.client_id = 0
        self.is_blocked = False
        self.is_ending = False
        self.over_at = inf
        self.is_emptied = False

    def open(self) -> None:
        """Connects, unless it is connected."""
        if self.line.open():
            try:
                self.client_id = int(self.line.ask("CLIENT", "ID"))
            except BaseException:
                self.line.close()  # or it would count as connected, with a number that is not its own
                raise


class Room:
    """What the waits of a channel have in common: it counts their connections, and knows whether waits can be ended.

    Args:
        most: The most connections at a time.
        reason: Why there are not as many as the option ``max_waiters`` says, if so, for the log.

    Attributes:
        ends_waits: Whether Redis lets one connection end the wait of another; None if that is not known.
    """

    def __init__(self, most: int, reason: str = "") -> None:
        self._left = most
        self._reason = reason
        self.ends_waits: bool | None = None

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

    def note_end(self, reply: Any) -> None:
        """Takes note of Redis's reply to ``CLIENT UNBLOCK``, which some services refuse."""
        if passes(reply):
            return
        if not isinstance(reply, redis.ResponseError):
            self.ends_waits = True if self.ends_waits is None else self.ends_waits
        elif self.ends_waits is not False:
            self.ends_waits = False
            logger.warning(
                "Redis refuses CLIENT UNBLOCK (%s): waits for messages last %g s at most. A message that comes to a "
                "consumer in its last wait, before it is busy or stops, is back in its queue after that time",
                *(reply, SHORT_WAIT_S),
            )


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
        self._resumes_at = -inf  # after Redis has refused a wait for a reason that passes

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

    def unsettled(self, queue: str | None = None) -> list[Waiter]:
        """Returns the waiters to whom messages may have come, of one queue or of all, for a caller that empties lists.

        Where Redis ends no wait, these are also the ones that were to end.
        """
        if self._room.ends_waits is not False:
            return self.blocked(queue)
        found = [waiter for place, waiter in list(self._waiters.items()) if queue in (None, place[0])]
        return [waiter for waiter in found if waiter.is_blocked and not waiter.is_emptied]

    def withdraw(self, store: TransportStore, waiters: Collection[Waiter], landings: Collection[Landing]) -> None:
        """Ends waits as far as Redis lets it, and puts back what has landed; one round trip.

        Args:
            store: The store of the broker.
            waiters: Whose waits to end.
            landings: The landing lists, of queues of one share.
        """
        now, refused = monotonic(), self._room.ends_waits is False
        store.taking.withdraw([] if refused else [waiter.client_id for waiter in waiters], tuple(landings))
        for waiter in waiters:
            waiter.is_emptied = now > waiter.over_at

    def wait(self, store: TransportStore, consumer: str, places: Iterable[Place]) -> None:
        """Waits for messages of these lists, as far as there are connections for them.

        Args:
            store: The store of the broker.
            consumer: Name of the consumer.
            places: The lists.
        """
        if monotonic() < self._resumes_at:
            return
        try:
            for place in places:
                waiter = self._waiters.get(place) or self._new_waiter(place, consumer)
                if waiter is not None and not waiter.is_blocked:
                    self._block(store, waiter, Landing(*place, consumer))
        except redis.ResponseError as error:
            if not passes(error):
                raise
            self._resumes_at = monotonic() + PASSING_S

    def end(self) -> list[Command]:
        """Returns the commands that end all waits. The reply to a wait comes all the same.

        The caller sends them before the command that empties the landing lists.
        """
        commands: list[Command] = []
        for waiter in self.blocked():
            waiter.is_ending = True
            if self._room.ends_waits is not False:
                commands.append(("CLIENT", "UNBLOCK", waiter.client_id))
        return commands

    def ended(self, replies: Iterable[Any]) -> None:
        """Takes note of the replies to the commands of ``end``."""
        for reply in replies:
            self._room.note_end(reply)
            if passes(reply):
                for waiter in list(self._waiters.values()):
                    waiter.is_ending = False  # its wait goes on, and has to be ended again

    def sit_out(self, queue: str | None = None) -> None:
        """Lets the waits for one queue or all end by themselves, where Redis ends none; for the thread that waits."""
        if self._room.ends_waits is False:
            for waiter in self.unsettled(queue):
                waiter.line.read_within(waiter.over_at - monotonic())

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

    def _block(self, store: TransportStore, waiter: Waiter, at: Landing) -> None:
        waiter.open()
        if self._room.ends_waits is None:
            self._room.note_end(_tried(waiter))
        most_s = SHORT_WAIT_S if self._room.ends_waits is False else LONGEST_WAIT_S
        longest_s = min(most_s, store.options.consumer_ttl * SHARE_OF_LEASE)
        waiter.landing = at
        ready, landing = store.taking.landing(at)
        command = ("BLMOVE", ready, landing, "RIGHT", "LEFT", longest_s)
        waiter.line.send([command], self._waker(waiter), longest_s)
        waiter.is_blocked, waiter.is_ending, waiter.is_emptied = True, False, False
        waiter.over_at = monotonic() + longest_s + NOTICED_S

    def _new_waiter(self, place: Place, consumer: str) -> Waiter | None:
        if self._is_refused or not self._room.take():
            return None
        line = self._new_line()
        waiter = Waiter(line, Landing(*place, consumer))
        try:
            waiter.open()
        except redis.ResponseError as error:
            if isinstance(error, OSError) or passes(error):
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
                self._resumes_at = monotonic() + FULL_S  # Redis takes no wait, but gives messages
            elif passes(reply):
                self._resumes_at = monotonic() + PASSING_S
            elif isinstance(reply, Exception):
                raise reply
            elif reply is not None:
                self._on_wake(waiter.landing)

        return wake


def _tried(waiter: Waiter) -> Any:
    """Returns what Redis replies to the end of a wait, while there is none."""
    try:
        return waiter.line.ask("CLIENT", "UNBLOCK", waiter.client_id)
    except redis.ResponseError as error:
        if isinstance(error, OSError) or passes(error):
            raise
        return error


def _warn(reason: str) -> None:
    logger.warning("%s: messages of some queues are looked for every second only", reason)
