"""Takes messages for a channel: sends the script, and waits where queues are empty."""

import re
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any

from kombu.log import get_logger
from kombu.utils.scheduling import priority_cycle, round_robin_cycle, sorted_cycle
from redis.exceptions import NoScriptError, RedisError, ResponseError

from kombu_delayq.connection import pools
from kombu_delayq.connection.text import Command
from kombu_delayq.consume.acks import Acks
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.deliveries import Deliveries
from kombu_delayq.consume.line import Line
from kombu_delayq.consume.lookout import Lookout
from kombu_delayq.message.fields import Message
from kombu_delayq.store import TransportStore
from kombu_delayq.store.consuming.taking import LeaseEnded, Request, Taken

logger = get_logger(__name__)

#: Errors of a Redis that does not let this user run a command of the script.
_DENIED = re.compile("NOPERM|executing the script can't|Unknown Redis command")
#: Most messages that one call takes.
BATCH = 8
#: Connections of a channel beside those that wait for messages: two of kombu's, and that of the taker.
OTHER_CONNECTIONS = 3
#: For how long a taker is busy with a message before its other messages go back, in s.
BUSY_S = 1.0
#: How late a reply may be, in s, where kombu's option health_check_interval does not say so.
OVERDUE_S = 25.0


class Taker:
    """Takes messages for the consumers of one channel.

    At any time it does one of three things: it awaits the reply to a request for messages; or, where its queues are
    empty, it waits for messages; or, without credit, it does nothing. All methods but ``ack`` and ``help`` are for the
    thread that consumes.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
    """

    def __init__(self, channel: Any, poller: Any) -> None:
        self._channel = channel
        self._poller = poller
        if "max_connections" not in channel.connection.client.transport_options:
            pools.make_room(channel.async_pool, channel.options.max_waiters + OTHER_CONNECTIONS)
        overdue_s = float(getattr(channel, "health_check_interval", None) or OVERDUE_S)
        new_line = partial(Line, channel.async_pool, poller.watch, poller.forget, overdue_s)
        self._line: Line = new_line()
        self._lookout = Lookout(new_line, channel.options.max_waiters, self._line.send)
        self.held: dict[str, str] = channel.consumer.held
        self._acks = Acks(self.held)
        self.deliveries = Deliveries(channel, self.ack, self._on_priority)
        self._unnoted: set[str] = set()
        self._request: Request | None = None
        self._by_text = False
        self._turned_at = monotonic()
        self._is_closed = False
        self._is_unsure = False
        self._kept_store: TransportStore | None = None

    def begin(self, queue: str, *, no_ack: bool) -> None:
        """Takes messages of a queue from now on, too."""
        if no_ack:
            self._unnoted.add(queue)
        else:
            self._unnoted.discard(queue)
        self._lookout.may_have_more = True

    def end(self, queue: str) -> None:
        """Takes no further messages of a queue, and puts those back that have not been delivered."""
        self._lookout.end(self._store, queue)
        self._lookout.keep(self._channel.active_queues)
        if not self._channel.active_queues:
            self._read_last()
        self.deliveries.put_back(self._store, queue)

    def get(self, queue: str, *, no_ack: bool) -> Message | None:
        """Takes one message of a queue, a round trip; None if there is none."""
        request = Request("", 0, 1, [queue], unnoted=[queue] if no_ack else [])
        try:
            found = self._take_now(self._named(request))
        except LeaseEnded:
            self._consumer.renew(self._store)
            found = self._take_now(self._named(request))
        return next((self.deliveries.message_of(self.deliveries.hold(taken)) for taken in found), None)

    def turn(self) -> None:
        """Delivers what is left of the turn before; otherwise sends requests, waits and acknowledgements."""
        self._turned_at = monotonic()
        self._line.check()
        self._lookout.check()
        if self._request is not None and not self._line.is_open:
            self._lost()
        if self._is_unsure:
            self._consumer.recover(self._store)
            self._is_unsure = False
        if self.deliveries:
            self._send_acks()  # the rest may keep this thread busy
            self._deliver()
        elif self._request is None:
            queues = self._channel.active_queues
            credit = self._credit() if queues else 0
            if not credit:
                self._pause()
            elif self._lookout.may_have_more:
                self._take(queues, credit)
            else:
                self._lookout.wait(self._store, self._consumer.name, queues)
        self._send_acks()

    def deliver_one(self) -> bool:
        """Delivers the next message that was taken. Returns whether there was one."""
        self._turned_at = monotonic()
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

    def help(self, store: TransportStore) -> None:
        """Does for a taker whose thread is busy what cannot wait; another thread calls this now and then.

        Args:
            store: A store of the caller's own.
        """
        is_late = monotonic() - self._turned_at > BUSY_S
        if is_late:
            self._acks.send(store)
            self.deliveries.put_back(store)
        if self.deliveries.busy_s > BUSY_S or (is_late and self._poller.is_left):
            self._lookout.end(store)

    def close(self) -> None:
        """Puts back what has not been delivered, and sends what is left to send."""
        self._is_closed = True
        self._read_last()
        self._lookout.end(self._store)
        self._consumer.recover(self._store)
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

    def _take_now(self, request: Request) -> list[Taken]:
        try:
            return self._store.taking.take(request)
        except (ResponseError, LeaseEnded):
            raise
        except BaseException:
            self._consumer.lose(request)
            raise

    @property
    def _store(self) -> TransportStore:
        if self._channel.connection is not None or self._kept_store is None:
            self._kept_store = self._channel.store
        return self._kept_store

    @property
    def _consumer(self) -> Consumer:
        consumer: Consumer = self._channel.consumer
        return consumer

    def _credit(self) -> int:
        """Returns how many messages to take at most."""
        qos = self._channel.qos
        if not qos.can_consume():
            return 0
        credit = qos.can_consume_max_estimate()
        if credit is None and not self._poller.loop_turns:
            return 1  # such a consumer gets a message with each call, and leaves the others to other consumers
        # Celery's worker_disable_prefetch replaces the method, and a cycle of the user's own may ask anything.
        if "can_consume" in vars(qos) or type(self._cycle) not in (round_robin_cycle, priority_cycle, sorted_cycle):
            return 1
        return BATCH if credit is None else min(credit - len(self.deliveries), BATCH)

    @property
    def _cycle(self) -> Any:
        return self._channel._queue_cycle

    def _named(self, request: Request) -> Request:
        """Returns a request in the name of the consumer, with numbers that are not used."""
        name = self._consumer.name
        return request._replace(consumer=name, first=self._consumer.numbers(request.most))

    def _take(self, queues: Sequence[str], credit: int) -> None:
        # Without a loop, whoever gets the message may keep this thread busy.
        commands, landings = self._lookout.landings(end=not self._poller.loop_turns)
        request = Request(
            *("", 0, credit, self._cycle.consume(len(queues))),
            in_turns=type(self._cycle) is round_robin_cycle,
            unnoted=frozenset(self._unnoted) if self._channel.ack_emulation else frozenset(queues),
            landings=tuple(landings),
        )
        self._ask(commands, self._named(request))

    def _pause(self) -> None:
        """Sees to it that no message comes while there is no credit."""
        commands, landings = self._lookout.landings(end=True)
        if landings:
            self._ask(commands, Request("", 0, 0, (), landings=tuple(landings)))

    def _ask(self, before: Sequence[Command], request: Request) -> None:
        acks, on_acked = self._acks.commands(self._store)
        take = self._store.taking.take_command(request, by_text=self._by_text)

        def on_replies(replies: list[Any]) -> None:
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
        if isinstance(reply, ResponseError) and _DENIED.search(str(reply)):
            self._channel.stop_taking(reply)
            return
        if isinstance(reply, Exception):
            raise reply
        self._lookout.emptied(request.landings)
        if request.most:
            try:
                self._note(self._store.taking.taken(request, reply), request.most)
            except LeaseEnded:
                self._consumer.renew(self._store)
                return
            if self._poller.loop_turns and not self._is_closed:
                self._deliver()

    def _note(self, found: Sequence[Taken], most: int) -> None:
        self._lookout.may_have_more = len(found) == most
        self.deliveries.add(found)
        for taken in found:
            self._cycle.rotate(taken.queue)
        if found and not self._is_closed and not self._credit():
            self._pause()

    def _on_priority(self, queue: str, priority: int) -> None:
        self._lookout.note_priority(queue, self._store.taking.step_of(priority))

    def _deliver(self) -> None:
        if self.deliveries.deliver_turn():
            self._poller.wake()
