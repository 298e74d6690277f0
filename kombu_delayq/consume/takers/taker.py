"""Takes messages: sends the script, and waits where queues are empty."""

from collections.abc import Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoScriptError, RedisError

from kombu_delayq.connection import pools
from kombu_delayq.connection.replies import PASSING_S, passes
from kombu_delayq.connection.text import Command
from kombu_delayq.consume.acks import Acks
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.deliveries import Deliveries
from kombu_delayq.consume.line import OVERDUE_S, Line
from kombu_delayq.consume.lookout import Lookout
from kombu_delayq.consume.takers.asking import is_denied, request_for
from kombu_delayq.consume.takers.credit import Among, Credit
from kombu_delayq.consume.waiters import Room
from kombu_delayq.message.fields import Message
from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.types import Landing, LeaseEnded, Request, Taken

logger = get_logger(__name__)

#: Connections of a channel beside those that wait for messages: two of kombu's, and that of the taker.
OTHER_CONNECTIONS = 3
#: For how long a taker is busy with a message before its other messages go back, in s.
BUSY_S = 1.0


class Taker:
    """Takes messages for the consumers of one channel.

    It awaits the reply to a request for messages; or, where its queues are empty, it waits for messages; or, without
    credit, it does nothing. All methods but ``ack`` and ``help`` are for the thread that consumes.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
        among: Of a channel with several takers, what this one shares with the others.
    """

    def __init__(self, channel: Any, poller: Any, among: Among | None = None) -> None:
        self._channel = channel
        self._poller = poller
        if "max_connections" not in channel.connection.client.transport_options:
            pools.make_room(channel.async_pool, channel.options.max_waiters + OTHER_CONNECTIONS)
        self._among = among or Among(
            *("", partial(pools.node_of, channel.async_pool, ""), poller.watch, Credit(channel, poller, [self])),
            *(self.pause, Room(channel.options.max_waiters)),
        )
        self._share = self._among.share
        overdue_s = float(getattr(channel, "health_check_interval", None) or OVERDUE_S)
        new_line = partial(Line, self._among.pool_of, self._among.watch, poller.forget, overdue_s)
        self._line: Line = new_line()
        self._lookout = Lookout(new_line, self._among.room, self._line.send)
        self.held: dict[str, str] = channel.consumer.held
        self._acks = Acks(self.held, self._share)
        self.deliveries = Deliveries(channel, self.ack, self._lookout.note_priority)
        self._unnoted: set[str] = set()
        self._begun: set[str] = set()
        self._request: Request | None = None
        self._turned_at = monotonic()
        self._is_closed = self._is_unsure = self._by_text = False
        self._kept_store: TransportStore | None = None
        self._resumes_at: float | None = None  # after an error that passes

    @property
    def queues(self) -> list[str]:
        """Names of the queues that it takes messages from now."""
        active: list[str] = [*self._begun] if self._share else self._channel.active_queues
        return active

    @property
    def waiting(self) -> int:
        """How many messages were taken and not delivered."""
        return len(self.deliveries)

    @property
    def asked(self) -> int:
        """How many messages may come in reply to the request on its way; 0 for a late one, which nobody waits for."""
        return 0 if self._request is None or self._line.is_late else self._request.most

    @property
    def is_eager(self) -> bool:
        """Whether it asks for messages as soon as it may."""
        return self._request is None and not self.deliveries and self._lookout.may_have_more and bool(self.queues)

    @property
    def lines(self) -> list[Line]:
        """Its connections: the one over which it asks for messages, and then those that wait for messages."""
        return [self._line, *self._lookout.lines]

    def begin(self, queue: str, *, no_ack: bool) -> None:
        """Takes messages of a queue from now on, too."""
        (self._unnoted.add if no_ack else self._unnoted.discard)(queue)
        self._begun.add(queue)
        self._lookout.may_have_more = True

    def end(self, queue: str) -> None:
        """Takes no further messages of a queue, and puts those back that have not been delivered."""
        self._begun.discard(queue)
        self._lookout.end(self._store, queue)
        self._lookout.keep(self.queues)
        if not self.queues:
            self._read_last()
        self.deliveries.put_back(self._store, queue)

    def get(self, queue: str, *, no_ack: bool) -> Message | None:
        """Takes one message of a queue, a round trip; None if there is none."""
        request = Request("", 0, 1, [queue], unnoted=[queue] if no_ack else [])
        found = self._consumer.take(self._store, self._share, request)
        return next((self.deliveries.message_of(self.deliveries.hold(taken)) for taken in found), None)

    def note_turn(self) -> None:
        """Notes that the thread that consumes is not busy."""
        self._turned_at = monotonic()

    def turn(self) -> None:
        """Delivers what is left of the turn before; otherwise sends requests, waits and acknowledgements."""
        self.note_turn()
        self._line.check()
        self._lookout.check()
        if self._request is not None and not self._line.is_open:
            self._lost()
        if self._is_unsure:
            self._consumer.recover(self._store, self._share)
            self._is_unsure = False
        if self.deliveries:
            self._send_acks()  # the rest may keep this thread busy
            self._deliver(before_wait=True)
        elif self._request is None and monotonic() >= (self._resumes_at or 0.0):
            queues = self.queues
            if not (queues and self._among.credit.left):
                self.pause()
            elif not self._lookout.may_have_more:
                self._lookout.wait(self._store, self._consumer.name_in(self._share), queues)
            elif credit := self._among.credit.of(self):
                self._take(queues, credit)
        self._send_acks()

    def turn_apart(self) -> None:
        """Does what ``turn`` does by commands of the store, each a round trip, and does not wait for messages."""
        self.note_turn()
        self._acks.send(self._store)
        if not self.deliveries and (queues := self.queues) and (credit := self._among.credit.of(self)):
            request = self._request_for(queues, credit, self._lookout.landings(end=False)[1])
            found = self._consumer.take(self._store, self._share, request)
            self._lookout.emptied(request.landings)
            self._note(found, credit)
        if self.deliveries and self._poller.loop_turns:
            self._deliver(before_wait=True)

    def deliver_one(self) -> bool:
        """Delivers the next message that was taken. Returns whether there was one."""
        self.note_turn()
        return self.deliveries.deliver() is not None

    def ack(self, tag: str) -> None:
        """Acknowledges a message, by the end of a loop's turn; at once where no loop turns."""
        self._acks.add(tag)
        if self._is_closed or not self._poller.loop_turns or not self._channel.takes:
            self._acks.send(self._store)
        elif not self._poller.is_own_thread:
            self._poller.wake()
        elif self.deliveries.are_under_way:
            self._send_acks()  # a solo pool runs the task now, and the loop turns only afterwards

    def help(self, store: TransportStore, busy_s: float = 0.0) -> None:
        """Does for a taker whose thread is busy what cannot wait; another thread calls this now and then.

        Args:
            store: A store of the caller's own.
            busy_s: For how long a callback of another taker has kept the thread busy, in s.
        """
        is_late = monotonic() - self._turned_at > BUSY_S
        if is_late:
            self._acks.send(store)
            self.deliveries.put_back(store)
        if max(self.deliveries.busy_s, busy_s) > BUSY_S or (is_late and self._poller.is_left):
            self._lookout.end(store, is_own_thread=False)

    def close(self) -> None:
        """Puts back what has not been delivered, and sends what is left to send."""
        self._is_closed = True
        self._read_last()
        self._lookout.end(self._store)
        self._consumer.recover(self._store, self._share)
        self.deliveries.put_back(self._store)
        self._acks.repeat()
        self._acks.send(self._store)
        self.drop()

    def lose(self, connection: Any) -> None:
        """Takes note that a connection has ended, such as one that redis-py has closed; another one takes its place."""
        self._lookout.lose(connection)
        if self._line.lose(connection):
            self._lost()

    def drop(self) -> None:
        """Closes all connections."""
        self._lookout.close()
        self._line.close()
        self._lost()

    def _read_last(self) -> None:
        """Reads the reply to the last request, if the connection still brings it."""
        if self._request is not None:
            try:
                self._line.read()
            except (RedisError, OSError) as error:
                logger.info("the reply to the last request for messages is lost: %s", error)
        if self._request is not None:
            self._lost()

    def _lost(self) -> None:
        """Takes note that no replies come any more over the connection that there was."""
        request, self._request = self._request, None
        if request is not None and request.most:
            self._consumer.lose(request)
            self._is_unsure = True
        self._acks.repeat()
        self._lookout.may_have_more = True

    @property
    def _store(self) -> TransportStore:
        if self._channel.connection is not None or self._kept_store is None:
            self._kept_store = self._channel.store
        return self._kept_store

    @property
    def _consumer(self) -> Consumer:
        consumer: Consumer = self._channel.consumer
        return consumer

    def _take(self, queues: Sequence[str], credit: int) -> None:
        # Without a loop, the callback that gets the message may keep this thread busy.
        commands, landings = self._lookout.landings(end=not self._poller.loop_turns)
        self._ask(commands, self._consumer.named(self._request_for(queues, credit, landings), self._share))

    def _request_for(self, queues: Sequence[str], credit: int, landings: Iterable[Landing]) -> Request:
        return request_for(self._channel, queues, credit, landings, share=self._share, unnoted=self._unnoted)

    def pause(self) -> None:
        """Sees to it that no message comes while there is no credit. Does nothing while a request is on its way."""
        if self._request is not None:
            return
        commands, landings = self._lookout.landings(end=True)
        if landings:
            self._ask(commands, Request("", 0, 0, (), landings=tuple(landings)))

    def _ask(self, before: Sequence[Command], request: Request) -> None:
        acks, on_acked = self._acks.commands(self._store)
        take = self._store.taking.take_command(request, by_text=self._by_text)

        def on_replies(replies: list[Any]) -> None:
            self._lookout.ended(replies[: len(before)])
            on_acked(replies[len(before) : -1])
            self._on_taken(request, replies[-1])

        self._request = request  # Redis may run it even if sending it fails
        self._line.send([*before, *acks, take], on_replies)

    def _send_acks(self) -> None:
        commands, on_acked = self._acks.commands(self._store)
        if commands:
            self._line.send(commands, on_acked)

    def _on_taken(self, request: Request, reply: Any) -> None:
        self._request = None
        self._by_text = isinstance(reply, NoScriptError)
        if self._by_text:
            self._lookout.may_have_more = True
            return
        if is_denied(reply):
            self._channel.stop_taking(reply)
            return
        if passes(reply):
            self._rest(reply)
            return
        if isinstance(reply, Exception):
            raise reply
        self._resumes_at = None
        self._lookout.emptied(request.landings)
        if request.most:
            try:
                self._note(self._store.taking.taken(request, reply), request.most)
            except LeaseEnded:
                self._consumer.renew(self._store, self._share)
                return
            if self._poller.loop_turns and not self._is_closed:
                self._deliver(before_wait=False)

    def _rest(self, error: Any) -> None:
        if self._resumes_at is None:
            logger.warning("Redis gives no messages now, and is asked again each second: %s", error)
        self._resumes_at = monotonic() + PASSING_S
        self._poller.wake_in(PASSING_S)

    def _note(self, found: Sequence[Taken], most: int) -> None:
        self._lookout.may_have_more = self._store.taking.may_have_more(found, most)
        self.deliveries.add(found)
        for taken in found:
            self._channel._queue_cycle.rotate(taken.queue)
        # Without a loop, a callback may keep this thread busy. The request has ended only the waits of this taker.
        is_last = not self._among.credit.left or (self._share and not self._poller.loop_turns)
        if found and not self._is_closed and is_last:
            self._among.pause()

    def _deliver(self, *, before_wait: bool) -> None:
        if self.deliveries.deliver_turn(before_wait=before_wait):
            self._poller.wake()
