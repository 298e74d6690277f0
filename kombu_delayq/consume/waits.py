"""Waits for messages while queues are empty.

Each wait blocks on one list, over a connection of its own. Redis moves the first message that comes to an *in-flight
list*, from which the next fetch gets it. Lists without a wait are looked at every second.

======= ================================= =================================================================
state   may a message still come          what ends it
======= ================================= =================================================================
FREE    no: no command is under way       the next wait: BLOCKED
BLOCKED yes                               its reply, or its connection is lost: FREE.
                                          Another connection ends it: ENDING
ENDING  no, unless Redis ends no wait     its reply: FREE. Redis refuses to end it for now: BLOCKED
======= ================================= =================================================================

Only the thread that consumes changes a state.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from kombu.log import get_logger
from redis.exceptions import NoPermissionError, OutOfMemoryError

from kombu_delayq.consume.pipelined import PipelinedConnection
from kombu_delayq.consume.poller import TOLD_S
from kombu_delayq.redis import PASSING_S, Command, clears, is_pool_full, passes
from kombu_delayq.store import InFlight

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: The most connections on which a channel waits for messages. Each costs Redis some memory, and a worker a descriptor.
MOST_WAITS = 32
#: How often lists without a wait are looked at, in s.
LOOK_S = 1.0
#: Redis ends a wait after so long, in s, at the latest; a lease of a consumer is several times longer.
LONGEST_WAIT_S, FRACTION_OF_LEASE = 20.0, 1 / 3
#: A wait is so short, in s, where Redis refuses to end one; and how much later its end may be noticed.
SHORT_WAIT_S, NOTICED_S = 1.0, 0.5
#: For how long a full Redis is not asked to wait, in s. The consumer looks at its queues every second meanwhile.
FULL_S = 5.0
#: Why there are few waits where the user bounds connections, and where Redis refuses them.
NO_CONNECTION_LEFT = "the transport option max_connections leaves no room for more waiting connections"
_REFUSED = "Redis refuses what it takes to wait for messages ({})"

#: A list of a queue: the queue's name, and the number of the list as in ``Keys.ready``.
QueueList = tuple[str, int]


class WaitBudget:
    """The connections on which a channel may wait for messages, and whether Redis lets one end the wait of another.

    Args:
        most: The most connections at a time.
        reason: Why there are fewer than ``MOST_WAITS``, if so, for the log.

    Attributes:
        ends_waits: Whether Redis accepts ``CLIENT UNBLOCK``; None if that is not known.
    """

    def __init__(self, most: int, reason: str = "") -> None:
        self._left = most
        self._reason = reason
        self.ends_waits: bool | None = None

    def spend(self) -> bool:
        """Reserves a connection. Returns whether one was left."""
        if self._left <= 0:
            reason, self._reason = self._reason, ""
            if reason:
                _warn(reason)
            return False
        self._left -= 1
        return True

    def free(self) -> None:
        """Gives a connection back."""
        self._left += 1

    def note_end(self, reply: Any) -> None:
        """Learns from Redis's reply to ``CLIENT UNBLOCK``, which some services refuse."""
        if not isinstance(reply, redis.ResponseError):
            self.ends_waits = True if self.ends_waits is None else self.ends_waits
        elif self.ends_waits is not False and not passes(reply):
            self.ends_waits = False
            logger.warning(
                "Redis refuses CLIENT UNBLOCK (%s): waits for messages last %g s at most. A message that comes to a "
                "consumer in its last wait, before it is busy or stops, is back in its queue after that time",
                reply,
                SHORT_WAIT_S,
            )


class WaitState(Enum):
    """What a wait does; see the head of this file."""

    FREE = auto()
    BLOCKED = auto()
    ENDING = auto()


class Wait:
    """A wait for a message of one list.

    Attributes:
        connection: The connection that blocks.
        in_flight: Where the message will be.
        client_id: Number of the connection, by which another one can end the wait.
        state: What it does.
        over_at: When the wait has ended by itself at the latest, in s of ``monotonic``.
        is_emptied: Whether its in-flight list has been emptied after that, although the reply was not read.
    """

    def __init__(self, connection: PipelinedConnection, in_flight: InFlight) -> None:
        self.connection = connection
        self.in_flight = in_flight
        self.client_id = 0
        self.state = WaitState.FREE
        self.over_at = inf
        self.is_emptied = False

    def open(self) -> None:
        """Connects, unless it is connected."""
        if self.connection.open():
            self.connection.keep_alive()
            try:
                self.client_id = int(self.connection.ask("CLIENT", "ID"))
            except BaseException:
                self.connection.close()  # or it would count as connected, with a number that is not its own
                raise

    def try_end(self) -> Any:
        """Returns what Redis replies to the end of a wait, while there is none."""
        try:
            return self.connection.ask("CLIENT", "UNBLOCK", self.client_id)
        except redis.ResponseError as error:
            if isinstance(error, OSError) or passes(error):
                raise
            return error


class Waits:
    """The waits of a fetcher, and what is in flight to it.

    Args:
        connect: Makes a connection to wait over; it is not open yet.
        budget: Bounds the connections.
        send: Sends commands over the fetcher's own connection, and calls a function with their replies.
        on_arrival: Called by the thread that consumes with the name of the queue when a message is in flight.
    """

    def __init__(
        self,
        connect: Callable[[], PipelinedConnection],
        budget: WaitBudget,
        send: Callable[[Sequence[Command], Callable[[list[Any]], None]], None],
        on_arrival: Callable[[str], None],
    ) -> None:
        self._connect = connect
        self._budget = budget
        self._send = send
        self._on_arrival = on_arrival
        self._waits: dict[QueueList, Wait] = {}
        self._prioritized: set[QueueList] = set()
        self._paused: Collection[str] = ()
        # The thread of the heartbeat uses it, too. Each step with it is one call into C, which no thread interrupts.
        self._arrived: set[InFlight] = set()
        self._may_have_more = True
        self._looked_at = self._told_at = -inf
        self._lists: Collection[str] = ()  # names of all its lists
        self._told: Mapping[str, bool] = {}  # whether lists have messages
        self._is_refused = False
        self._resumes_at = -inf  # after Redis has refused a wait for a reason that passes

    @property
    def may_have_more(self) -> bool:
        """Whether a queue, or an in-flight list, may have messages."""
        return self._may_have_more or bool(self._arrived)

    @may_have_more.setter
    def may_have_more(self, found: bool) -> None:
        # A reply says nothing of what is in flight since its request was sent, although it may be read later.
        self._may_have_more = found

    @property
    def is_unused(self) -> bool:
        """Whether nothing has waited and no message is in flight since all connections were closed."""
        return not (self._waits or self._arrived)

    @property
    def connections(self) -> list[PipelinedConnection]:
        """The connections that wait for messages."""
        return [wait.connection for wait in list(self._waits.values())]

    @property
    def arrived(self) -> set[InFlight]:
        """The in-flight lists that may have messages. A caller that empties them calls ``emptied``."""
        return self._arrived.copy()

    def wait(self, store: "DelayStore", consumer: str, queues: Sequence[str]) -> None:
        """Waits for messages, as far as there are connections, and now and then looks at the lists without a wait.

        Args:
            store: The store of the broker.
            consumer: Name of the consumer.
            queues: The queues. A paused one has no wait; the look finds out when its pause is over.
        """
        known = set(queues).difference(self._paused)
        lists = [(queue, 0) for queue in queues if queue in known]
        lists += [one for one in self._prioritized if one[0] in known]
        self._wait_for(store, consumer, lists)
        if monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = monotonic()
            self._look(store, queues)

    def note_priority(self, queue: str, step: int) -> None:
        """Waits from now on for messages of a priority that is in use."""
        if step:
            self._prioritized.add((queue, step))

    def note_lists(self, told: Mapping[str, bool]) -> bool:
        """Learns from the leader which lists have messages, so that it need not look. Returns whether one of its has.

        Redis leaves no message in a list for which a connection waits, so that one is lost if its list has any.
        """
        self._told, self._told_at = told, monotonic()
        return any(told.get(name) for name in self._lists)

    def note_paused(self, queues: Collection[str]) -> None:
        """Learns which of its queues are paused: Redis gives no messages of them."""
        self._paused = queues

    def end_all(self) -> tuple[list[Command], set[InFlight]]:
        """Ends all waits. The reply to each comes all the same.

        Returns:
            The commands that end them, and the in-flight lists that may have messages then. The caller empties the
            lists after the commands, calls ``ended``, and then ``emptied``.
        """
        in_flight = self.arrived
        self._may_have_more |= bool(in_flight)  # what the caller does not fetch goes back to its queue
        commands: list[Command] = []
        for wait in self._blocked():
            in_flight.add(wait.in_flight)
            wait.state = WaitState.ENDING
            if self._budget.ends_waits is not False:
                commands.append(("CLIENT", "UNBLOCK", wait.client_id))
        return commands, in_flight

    def ended(self, replies: Iterable[Any]) -> None:
        """Learns from the replies to the commands of ``end_all``."""
        for reply in replies:
            self._budget.note_end(reply)
            if isinstance(reply, redis.ResponseError) and passes(reply):
                for wait in list(self._waits.values()):
                    if wait.state is WaitState.ENDING:
                        wait.state = WaitState.BLOCKED  # it goes on, and has to be ended again

    def emptied(self, in_flight: Collection[InFlight]) -> None:
        """Forgets in-flight lists that have been emptied."""
        self._arrived.difference_update(in_flight)

    def end(self, store: "DelayStore", queue: str | None = None, *, is_own_thread: bool = True) -> None:
        """Ends the waits for one queue or all, and puts back what is in flight; one round trip if there is any.

        Args:
            store: The store of the broker.
            queue: Name of the queue, by default all.
            is_own_thread: Whether the caller's thread is the one that consumes. Where Redis ends no wait, it stays
                until the waits have ended. Any other thread comes again.
        """
        if is_own_thread and self._budget.ends_waits is False:
            for wait in self._unsettled(queue):
                wait.connection.read_within(wait.over_at - monotonic())
        waits = self._unsettled(queue)
        arrived = {at for at in self.arrived if queue in (None, at.queue)}
        in_flight = {wait.in_flight for wait in waits} | arrived
        if in_flight:
            # What comes from now on is noted by the thread that consumes, and this call may not have met it.
            self.emptied(arrived)
            try:
                self._withdraw(store, waits, in_flight)
            except BaseException:
                self._arrived.update(in_flight)
                raise

    def check(self) -> None:
        """Raises an error when the reply to a wait is overdue."""
        for wait in list(self._waits.values()):
            wait.connection.check()

    def keep(self, queues: Iterable[str]) -> None:
        """Closes the connections for all queues but these. No wait for the others is blocked."""
        for at in [at for at in self._waits if at[0] not in queues]:
            self._waits.pop(at).connection.close()
            self._budget.free()

    def lose(self, connection: Any) -> None:
        """Learns that a connection has ended. A message may be in flight over it."""
        for wait in list(self._waits.values()):
            if wait.connection.lose(connection):
                wait.state = WaitState.FREE
                self._arrived.add(wait.in_flight)

    def close(self) -> None:
        """Closes all connections. Messages may be in flight."""
        self._arrived.update(wait.in_flight for wait in self._blocked())
        self.keep(())
        self.may_have_more = True

    def _of(self, queue: str | None) -> list[Wait]:
        return [wait for at, wait in list(self._waits.items()) if queue in (None, at[0])]

    def _blocked(self, queue: str | None = None) -> list[Wait]:
        return [wait for wait in self._of(queue) if wait.state is WaitState.BLOCKED]

    def _unsettled(self, queue: str | None) -> list[Wait]:
        """Returns the waits to which messages may have come; where Redis ends no wait, also those that were to end."""
        if self._budget.ends_waits is not False:
            return self._blocked(queue)
        return [wait for wait in self._of(queue) if wait.state is not WaitState.FREE and not wait.is_emptied]

    def _withdraw(self, store: "DelayStore", waits: Collection[Wait], in_flight: Collection[InFlight]) -> None:
        """Ends waits as far as Redis lets it, and puts back what is in flight; one round trip."""
        now, refused = monotonic(), self._budget.ends_waits is False
        store.fetching.withdraw([] if refused else [wait.client_id for wait in waits], tuple(in_flight))
        for wait in waits:
            wait.is_emptied = now > wait.over_at

    def _wait_for(self, store: "DelayStore", consumer: str, lists: Iterable[QueueList]) -> None:
        if monotonic() < self._resumes_at:
            return
        try:
            for at in lists:
                wait = self._waits.get(at) or self._new_wait(at, consumer)
                if wait is not None and wait.state is WaitState.FREE:
                    self._block(store, wait, InFlight(*at, consumer))
        except redis.ResponseError as error:
            if not passes(error):
                raise
            self._resumes_at = monotonic() + PASSING_S

    def _block(self, store: "DelayStore", wait: Wait, at: InFlight) -> None:
        wait.open()
        if self._budget.ends_waits is None:
            self._budget.note_end(wait.try_end())
        most_s = SHORT_WAIT_S if self._budget.ends_waits is False else LONGEST_WAIT_S
        longest_s = min(most_s, store.options.consumer_ttl * FRACTION_OF_LEASE)
        wait.in_flight = at
        ready, in_flight = store.fetching.in_flight_keys(at)
        command = ("BLMOVE", ready, in_flight, "RIGHT", "LEFT", longest_s)
        wait.connection.send([command], lambda replies: self._on_reply(wait, *replies), longest_s)
        wait.state, wait.is_emptied = WaitState.BLOCKED, False
        wait.over_at = monotonic() + longest_s + NOTICED_S

    def _on_reply(self, wait: Wait, reply: Any) -> None:
        was, wait.state = wait.state, WaitState.FREE
        if isinstance(reply, NoPermissionError):
            self._refuse(wait.connection, _REFUSED.format(reply))
            self._waits.pop((wait.in_flight.queue, wait.in_flight.step), None)
        elif isinstance(reply, OutOfMemoryError):
            self._resumes_at = monotonic() + FULL_S  # Redis takes no wait, but gives messages
        elif isinstance(reply, Exception):
            if not clears(reply):
                raise reply
            self._resumes_at = monotonic() + PASSING_S
        elif reply is not None:
            self._arrived.add(wait.in_flight)
            self._may_have_more |= was is WaitState.ENDING  # what has ended the wait does not fetch it
            self._on_arrival(wait.in_flight.queue)

    def _new_wait(self, at: QueueList, consumer: str) -> Wait | None:
        """Returns a new wait; None if there is no connection for it."""
        if self._is_refused or not self._budget.spend():
            return None
        connection = self._connect()
        wait = Wait(connection, InFlight(*at, consumer))
        try:
            wait.open()
        except redis.ResponseError as error:
            if isinstance(error, OSError) or passes(error):
                self._budget.free()
                raise
            self._refuse(connection, _REFUSED.format(error))
            return None
        except redis.ConnectionError as error:
            if not is_pool_full(error):
                connection.close()
                self._budget.free()
                raise
            self._refuse(connection, NO_CONNECTION_LEFT)
            return None
        self._waits[at] = wait
        return wait

    def _refuse(self, connection: PipelinedConnection, reason: str) -> None:
        connection.close()
        self._budget.free()
        self._is_refused = True
        _warn(reason)

    def _look(self, store: "DelayStore", queues: Iterable[str]) -> None:
        """Asks for lists without a wait; in a cluster for all, because a wait does not hear that its slot moves."""
        waited = {at for at, wait in self._waits.items() if wait.state is not WaitState.FREE and not store.pool.several}
        names = {
            (queue, step): store.fetching.in_flight_keys(InFlight(queue, step, ""))[0]
            for queue in queues
            for step in range(store.fetching.steps(queue))
        }
        self._lists = names.values()
        told = self._told if monotonic() - self._told_at < TOLD_S else ()
        lists = [name for at, name in names.items() if at not in waited and name not in told]
        if lists:
            self._send([("EXISTS", *lists)], self._on_looked)

    def _on_looked(self, replies: list[Any]) -> None:
        if not isinstance(replies[0], Exception):
            self._may_have_more |= bool(replies[0])
        elif not passes(replies[0]):
            raise replies[0]


def _warn(reason: str) -> None:
    logger.warning("%s: messages of some queues are looked for every second only", reason)
