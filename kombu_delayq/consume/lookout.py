"""Where messages of a channel's queues may be: which lists it waits for, which it looks at, and what has landed."""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from time import monotonic
from typing import Any

from kombu_delayq.connection import pools
from kombu_delayq.connection.replies import passes
from kombu_delayq.connection.text import Command
from kombu_delayq.consume.line import Line
from kombu_delayq.consume.waiters import Place, Room, Waiters
from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.types import Landing

#: How often lists without a waiter are looked at, in s.
LOOK_S = 1.0


class Lookout:
    """Waits for messages of empty queues, and looks at the lists that it does not wait for.

    Args:
        new_line: Makes a connection to wait over.
        room: Counts the connections to wait over.
        send: Sends commands, and calls a function with their replies.
    """

    def __init__(
        self,
        new_line: Callable[[], Line],
        room: Room,
        send: Callable[[Sequence[Command], Callable[[list[Any]], None]], None],
    ) -> None:
        self._may_have_more = True
        self._waiters = Waiters(new_line, room, self._on_landed)
        self._send = send
        self._prioritized: set[Place] = set()
        # The thread of the heartbeat uses it, too. Each step with it is one call into C, which no thread interrupts.
        self._landed: set[Landing] = set()
        self._looked_at = -inf

    @property
    def may_have_more(self) -> bool:
        """Whether a queue, or a landing list, may have messages."""
        return self._may_have_more or bool(self._landed)

    @may_have_more.setter
    def may_have_more(self, found: bool) -> None:
        # A reply says nothing of what has landed since its request was sent, although it may be read later.
        self._may_have_more = found

    @property
    def lines(self) -> list[Line]:
        """The connections that wait for messages."""
        return self._waiters.lines

    def wait(self, store: TransportStore, consumer: str, queues: Sequence[str]) -> None:
        """Waits for messages, and now and then looks at lists that have no waiter.

        Args:
            store: The store of the broker.
            consumer: Name of the consumer.
            queues: The queues.
        """
        places = [(queue, 0) for queue in queues]
        known = set(queues)
        places += [place for place in self._prioritized if place[0] in known]
        self._waiters.wait(store, consumer, places)
        if monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = monotonic()
            self._look(store, queues)

    def note_priority(self, queue: str, step: int) -> None:
        """Waits from now on for messages of a priority that is in use."""
        if step:
            self._prioritized.add((queue, step))

    def landings(self, *, end: bool) -> tuple[list[Command], set[Landing]]:
        """Returns landing lists that may have messages.

        Args:
            end: Whether to end all waits.

        Returns:
            The commands that end them, and the landing lists. The caller empties these after the commands, and calls
            ``emptied``.
        """
        landed = self._landed.copy()
        if not end:
            return [], landed
        landed.update(waiter.landing for waiter in self._waiters.blocked())
        return self._waiters.end(), landed

    def emptied(self, landings: Collection[Landing]) -> None:
        """Takes note that landing lists have been emptied."""
        self._landed.difference_update(landings)

    def ended(self, replies: Iterable[Any]) -> None:
        """Takes note of the replies to the commands of ``landings``."""
        self._waiters.ended(replies)

    def end(self, store: TransportStore, queue: str | None = None, *, is_own_thread: bool = True) -> None:
        """Ends the waits for one queue or all, and puts what has landed back; one round trip if there is any.

        Args:
            store: The store of the broker.
            queue: Name of the queue, by default all.
            is_own_thread: Whether the caller's thread is the one that consumes. Where Redis ends no wait, it stays
                until the waits have ended. Any other thread comes again.
        """
        if is_own_thread:
            self._waiters.sit_out(queue)
        blocked = self._waiters.unsettled(queue)
        landed = {at for at in self._landed.copy() if queue in (None, at.queue)}
        landings = {waiter.landing for waiter in blocked} | landed
        if landings:
            # What lands from now on is noted by the thread that consumes, and this call may not have met it.
            self.emptied(landed)
            try:
                self._waiters.withdraw(store, blocked, landings)
            except BaseException:
                self._landed.update(landings)
                raise

    def check(self) -> None:
        """Raises an error when the reply to a wait is overdue."""
        self._waiters.check()

    def keep(self, queues: Iterable[str]) -> None:
        """Closes the connections for all queues but these."""
        self._waiters.keep(queues)

    def lose(self, connection: Any) -> None:
        """Takes note that a connection has ended."""
        self._waiters.lose(connection)

    def close(self) -> None:
        """Closes all connections. Messages may have landed."""
        self._landed.update(waiter.landing for waiter in self._waiters.blocked())
        self._waiters.close()
        self.may_have_more = True

    def _look(self, store: TransportStore, queues: Iterable[str]) -> None:
        """Asks for lists without a waiter; in a cluster for all, because a wait does not hear that its slot moves."""
        waited = set[Place]() if pools.has_nodes(store.client.connection_pool) else self._waiters.places
        lists = [
            store.taking.landing(Landing(queue, step, ""))[0]
            for queue in queues
            for step in range(store.taking.steps(queue))
            if (queue, step) not in waited
        ]
        if lists:
            self._send([("EXISTS", *lists)], self._on_looked)

    def _on_looked(self, replies: list[Any]) -> None:
        if passes(replies[0]):
            return
        if isinstance(replies[0], Exception):
            raise replies[0]
        self.may_have_more = bool(replies[0]) or self.may_have_more

    def _on_landed(self, landing: Landing) -> None:
        self._landed.add(landing)
