"""Fetches messages: sends the script, and waits where queues are empty."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from kombu.log import get_logger
from kombu.utils.scheduling import priority_cycle, round_robin_cycle, sorted_cycle
from redis.exceptions import NoScriptError, RedisError

from kombu_delayq.consume.acks import Acks
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.deliveries import Deliveries
from kombu_delayq.consume.idle import MOST_WAITS, IdleWaits, WaitBudget
from kombu_delayq.consume.pipelined import OVERDUE_S, PipelinedConnection
from kombu_delayq.message.fields import Message
from kombu_delayq.options import Options
from kombu_delayq.redis import pools
from kombu_delayq.redis.errors import PASSING_S, clears, is_denied
from kombu_delayq.redis.replies import Command
from kombu_delayq.store.types import Fetched, InFlight, LeaseEnded, Request

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: Connections of a channel beside those that wait for messages: two of kombu's, and that of the fetcher.
OTHER_CONNECTIONS = 3
#: For how long a fetcher is busy with a message before its other messages go back, in s.
BUSY_S = 1.0
#: Most messages that one call fetches.
BATCH = 32
#: The fewest messages that are asked for while others are still to be delivered: each call costs some time.
AHEAD = 4
#: For how long acks and requests wait for more, in s, while the consumer has messages that it has not begun.
GATHER_S = 0.005


@dataclass(frozen=True)
class SharedByFetchers:
    """What the fetchers of a channel share. On a plain server it has one, in a cluster one for each queue.

    Attributes:
        share: What ``Keys.share`` returns for the fetcher's queues.
        pool_of: Returns the pool of the node that has these queues now.
        watch: Called with the file descriptor of a new connection.
        credit: The messages that the channel may fetch.
        pause: Lets no message come to any of the fetchers.
        budget: The connections on which the channel may wait for messages.
    """

    share: str
    pool_of: Callable[[], redis.ConnectionPool]
    watch: Callable[[int, PipelinedConnection], None]
    credit: "Credit"
    pause: Callable[[], None]
    budget: WaitBudget


class Credit:
    """The messages that a channel may fetch now: what ``prefetch_count`` leaves, and at most ``BATCH`` in one request.

    Args:
        channel: The channel.
        poller: The poller of its transport.
        fetchers: All fetchers of the channel.
    """

    def __init__(self, channel: Any, poller: Any, fetchers: Sequence["Fetcher"]) -> None:
        self._channel = channel
        self._poller = poller
        self._fetchers = fetchers

    @property
    def left(self) -> int:
        """How many messages the channel may hold more, at most ``BATCH``. Requests on their way are not counted."""
        return min(self._free(), BATCH)

    def of(self, fetcher: "Fetcher", *, ahead: bool = False) -> int:
        """Returns how many messages a fetcher may ask for now, none *ahead* while another one has yet to ask.

        A request of another fetcher counts as if it brought all that it asks for. While one is on its way, a fetcher
        asks only once it may ask for ``BATCH``: many small requests cost Redis several times as much.
        """
        if len(self._fetchers) == 1:
            return self.left
        if ahead and any(other.is_eager for other in self._fetchers):
            return 0
        asked = sum(other.asked for other in self._fetchers)
        free = self._free() - asked
        return min(free, BATCH) if free >= BATCH or (free > 0 and not asked) else 0

    def _free(self) -> int:
        """Returns for how many messages the channel has credit, beside those that wait for delivery."""
        qos = self._channel.qos
        if not qos.can_consume():
            return 0
        credit = qos.can_consume_max_estimate()
        # Without a loop and a prefetch_count, a consumer gets one message with each call. Others get the rest.
        is_single = credit is None and not self._poller.loop_turns
        # Celery's worker_disable_prefetch replaces ``can_consume``. A queue cycle of the user's own may ask anything.
        cycle = type(self._channel._queue_cycle)
        if is_single or "can_consume" in vars(qos) or cycle not in (round_robin_cycle, priority_cycle, sorted_cycle):
            return 1 if len(self._fetchers) == 1 else 1 - self._waiting
        return BATCH * len(self._fetchers) if credit is None else max(credit - self._waiting, 0)

    @property
    def _waiting(self) -> int:
        return sum(fetcher.waiting for fetcher in self._fetchers)


class Fetcher:
    """Fetches messages for the consumers of one channel.

    It is in one of three states. It awaits the reply to a request for messages; or its queues are empty, and it waits
    for messages; or the channel has no credit, and it does nothing. All methods but ``ack`` and ``help`` are for the
    thread that consumes.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
        shared: Of a channel with several fetchers, what this one shares with the others.
    """

    def __init__(self, channel: Any, poller: Any, shared: SharedByFetchers | None = None) -> None:
        self._channel = channel
        self._poller = poller
        if "max_connections" not in channel.connection.client.transport_options:
            pools.make_room(channel.async_pool, MOST_WAITS + OTHER_CONNECTIONS)
        self._shared = shared or SharedByFetchers(
            *("", partial(pools.node_of, channel.async_pool, ""), poller.watch, Credit(channel, poller, [self])),
            *(self.pause, WaitBudget(MOST_WAITS)),
        )
        self._share = self._shared.share
        overdue_s = float(getattr(channel, "health_check_interval", None) or OVERDUE_S)
        connect = partial(PipelinedConnection, self._shared.pool_of, self._shared.watch, poller.forget, overdue_s)
        self._connection: PipelinedConnection = connect()
        self._idle = IdleWaits(connect, self._shared.budget, self._connection.send, self._fetch_landed)
        self._consumer: Consumer = channel.consumer
        self.held = self._consumer.held
        self._acks = Acks(self.held, self._share)
        self.deliveries = Deliveries(channel, self.ack, self._idle.note_priority)
        self._unnoted: set[str] = set()
        self._begun: set[str] = set()
        self._unclaimed: dict[int, Request] = {}  # at most one, by its first number
        self._turned_at = monotonic()
        self._is_closed = self._is_ending = self._is_unsure = self._by_text = False
        self._kept_store: DelayStore | None = None
        self._resumes_at: float | None = None  # after an error that passes
        self._gathers_until: float | None = None  # when acks and requests that are gathered are sent at the latest

    @property
    def queues(self) -> list[str]:
        """Names of the queues from which it fetches now."""
        active: list[str] = [*self._begun] if self._share else self._channel.active_queues
        return active

    @property
    def waiting(self) -> int:
        """How many messages were fetched and not delivered."""
        return len(self.deliveries)

    @property
    def asked(self) -> int:
        """How many messages may come in reply to the request on its way; 0 for a late one, which nobody waits for."""
        return 0 if (request := self._request) is None or self._connection.is_late else request.most

    @property
    def is_eager(self) -> bool:
        """Whether it asks for messages as soon as it may."""
        return self._request is None and not self.deliveries and self._idle.may_have_more and bool(self.queues)

    @property
    def connections(self) -> list[PipelinedConnection]:
        """Its connections: the one over which it asks for messages, and then those that wait for messages."""
        return [self._connection, *self._idle.connections]

    def begin(self, queue: str, *, no_ack: bool) -> None:
        """Fetches messages of a queue from now on, too."""
        (self._unnoted.add if no_ack else self._unnoted.discard)(queue)
        self._begun.add(queue)
        self._idle.may_have_more = True

    def end(self, queue: str) -> None:
        """Fetches no further messages of a queue, and puts those back that have not been delivered."""
        self._begun.discard(queue)
        self._idle.end(self._store, queue)
        self._idle.keep(self.queues)
        if not self.queues or ((request := self._request) and queue in request.queues):
            self._read_last()  # what it brings goes back behind what was fetched before
        self.deliveries.put_back(self._store, queue)

    def get(self, queue: str, *, no_ack: bool) -> Message | None:
        """Fetches one message of a queue, a round trip; None if there is none."""
        request = Request("", 0, 1, [queue], unnoted=[queue] if no_ack else [])
        found = self._consumer.fetch(self._store, self._share, request)
        return next((self.deliveries.message_of(self.deliveries.hold(fetched)) for fetched in found), None)

    def note_turn(self) -> None:
        """Notes that the thread that consumes is not busy."""
        self._turned_at = monotonic()

    def turn(self) -> None:
        """Delivers what is left of the turn before; otherwise sends requests, waits and acknowledgements."""
        self.note_turn()
        self._connection.check()
        self._idle.check()
        if self._request is not None and not self._connection.is_open:
            self._lost()
        if self._is_unsure:
            self._consumer.recover(self._store, self._share)
            self._is_unsure = False
        if self.deliveries:
            self._send_acks()  # the rest may keep this thread busy
            self._deliver(before_wait=True)
        elif self._request is None and monotonic() >= (self._resumes_at or 0.0) and self._fetch_or_wait():
            return  # what is to be acknowledged goes with the request that is gathered
        is_over = self._gathers_until is None or monotonic() >= self._gathers_until
        # Otherwise they go with the next request. Without any, a request that is gathered keeps its time.
        if not self.asked and (not self._gathers(self._shared.credit.left) if self._acks else is_over):
            self._send_acks()

    def turn_apart(self) -> None:
        """Does what ``turn`` does by commands of the store, each a round trip, and does not wait for messages."""
        self.note_turn()
        self._acks.send(self._store)
        if not self.deliveries and (queues := self.queues) and (credit := self._shared.credit.of(self)):
            request = self._request_for(queues, credit, self._idle.in_flight(end=False)[1])
            found = self._consumer.fetch(self._store, self._share, request)
            self._idle.emptied(request.in_flight)
            self._note(found, credit)
        if self.deliveries and self._poller.loop_turns:
            self._deliver(before_wait=True)

    def deliver_one(self) -> bool:
        """Delivers the next message that was fetched. Returns whether there was one."""
        self.note_turn()
        return self.deliveries.deliver() is not None

    def ack(self, tag: str) -> None:
        """Acknowledges a message, by the end of a loop's turn; at once where no loop turns."""
        self._acks.add(tag)
        if self._is_closed or not self._poller.loop_turns or not self._channel.fetches:
            self._acks.send(self._store)
        elif not (self._poller.is_own_thread or self._request or self.deliveries.are_under_way) and (
            self._gathers_until is None or len(self._acks) >= self._channel.backlog()
        ):
            self._poller.wake()  # otherwise the loop turns soon

    def acks_later(self, tag: str) -> bool:
        """Whether ``ack`` of a message only notes it, so that any thread may do so in the middle of its work."""
        return tag in self.held and not self._is_closed and self._poller.loop_turns and self._channel.fetches

    def help(self, store: "DelayStore", busy_s: float = 0.0) -> None:
        """Does for a fetcher whose thread is busy what cannot wait; another thread calls this now and then.

        Args:
            store: A store of the caller's own.
            busy_s: For how long a callback of another fetcher has kept the thread busy, in s.
        """
        is_late = monotonic() - self._turned_at > BUSY_S
        if is_late:
            self._acks.send(store)
            self._give_up(store)
            self.deliveries.put_back(store)
        if max(self.deliveries.busy_s, busy_s) > BUSY_S or (is_late and self._poller.is_left):
            self._idle.end(store, is_own_thread=False)

    def close(self) -> None:
        """Puts back what has not been delivered, and sends what is left to send. Raises the first error after all."""
        self._is_closed = True
        self._read_last()
        self._acks.repeat()
        failed: Exception | None = None
        recover = partial(self._consumer.recover, share=self._share)
        for settle in (self._idle.end, recover, self.deliveries.put_back, self._acks.send):
            try:
                settle(self._store)
            except (RedisError, OSError) as error:
                failed = failed or error
            if isinstance(failed, redis.TimeoutError):
                break  # Redis would not answer the next command either
        if failed is not None:
            raise failed
        self.drop()

    def lose(self, connection: Any) -> None:
        """Learns that a connection has ended, such as one that redis-py has closed; another one takes its place."""
        self._idle.lose(connection)
        if self._connection.lose(connection):
            self._lost()

    def drop(self, *, for_good: bool = False) -> None:
        """Closes all connections. If that is ``for_good``, the heartbeat does what is left to do."""
        if for_good:
            self._is_closed = True
            self._consumer.leave_unsettled(self._share, self._settle)
        self._idle.close()
        self._connection.close()
        self._lost()

    def _fetch_or_wait(self) -> bool:
        """Asks for messages, or waits for some, if there is credit. Returns whether a request is gathered instead."""
        # A worker's channels for remote control and events have no queues here, and turn as often as the others.
        left = self._shared.credit.left if self._begun else 0
        if left and self._idle.may_have_more and self._gathers(left):
            return True
        queues = self.queues if left else ()
        if not queues:
            self.pause()
        elif not self._idle.may_have_more:
            self._idle.wait(self._store, self._consumer.name_in(self._share), queues)
        elif credit := self._shared.credit.of(self):
            self._fetch(queues, credit)
        return False

    def _fetch_ahead(self) -> None:
        """Asks for messages while the last of those before run, so that neither Redis nor this thread waits."""
        is_free = self._request is None and self._resumes_at is None and self._idle.may_have_more
        if is_free and self._connection.is_open and (queues := self.queues) and self._notes(queues):
            credit = self._shared.credit.of(self, ahead=True)
            if credit >= max(len(self.deliveries), AHEAD):
                self._fetch(queues, credit)

    def _fetch_landed(self, queue: str) -> None:
        """Asks at once for a message that has landed, which the next turn would do otherwise."""
        is_free = self._request is None and self._resumes_at is None and not (self._is_unsure or self.deliveries)
        if is_free and self._poller.loop_turns and not self._is_closed and queue in self.queues:
            self._fetch_or_wait()

    def _gathers(self, left: int) -> bool:
        """Whether a request, or acknowledgements, wait for more: many small ones cost Redis and this process more.

        They wait at most ``GATHER_S``, and only while fewer messages are missing than the consumer has not begun.

        Args:
            left: What ``Credit.left`` returns now.
        """
        unbegun: int = self._channel.backlog()
        if left >= min(unbegun, BATCH):
            return False
        if self._gathers_until is None:
            self._gathers_until = monotonic() + GATHER_S
            self._poller.wake_in(GATHER_S)
        return monotonic() < self._gathers_until

    def _read_last(self) -> None:
        """Reads the reply to the last request, if the connection still brings it soon, and does not deliver it yet."""
        if self._request is not None:
            self._is_ending = True
            try:
                self._connection.read_within(Options.answer_s)
            except (RedisError, OSError) as error:
                logger.info("the reply to the last request for messages is lost: %s", error)
            finally:
                self._is_ending = False
        if self._request is not None:
            self._lost()

    def _give_up(self, store: "DelayStore") -> None:
        """Puts back what the reply on its way brings, because the thread that would read it is busy."""
        if (request := self._request) and request.most and self._notes(request.queues) and self._claim(request):
            self._consumer.lose(request)
            self._consumer.recover(store, self._share)

    def _settle(self, store: "DelayStore") -> None:
        try:
            self.deliveries.put_back(store)
        finally:
            self._acks.send(store)

    def _notes(self, queues: Iterable[str]) -> bool:
        """Whether all that is taken from queues is noted as unacked, so that it can be put back."""
        return bool(self._channel.ack_emulation) and self._unnoted.isdisjoint(queues)

    @property
    def _request(self) -> Request | None:
        """The request on its way, unless it is given up."""
        return next(iter([*self._unclaimed.values()]), None)

    def _claim(self, request: Request) -> bool:
        """Ends a request on its way. Returns whether the caller sees to what it brings, and no other thread."""
        return self._unclaimed.pop(request.first, None) is not None

    def _lost(self) -> None:
        """Gives up the replies that the lost connection would have brought."""
        request = self._request
        if request is not None and self._claim(request) and request.most:
            self._consumer.lose(request)
            self._is_unsure = True
        self._acks.repeat()
        self._idle.may_have_more = True

    @property
    def _store(self) -> "DelayStore":
        if self._channel.connection is not None or self._kept_store is None:
            self._kept_store = self._channel.store
        return self._kept_store

    def _fetch(self, queues: Sequence[str], credit: int) -> None:
        # Without a loop, the callback that gets the message may keep this thread busy.
        commands, in_flight = self._idle.in_flight(end=not self._poller.loop_turns)
        self._ask(commands, self._consumer.named(self._request_for(queues, credit, in_flight), self._share))

    def _request_for(self, queues: Sequence[str], credit: int, in_flight: Iterable[InFlight]) -> Request:
        """Returns a request for messages, without the name of a consumer and a number."""
        channel = self._channel
        return Request(
            *("", 0, credit, queues if self._share else channel._queue_cycle.consume(len(queues))),
            in_turns=type(channel._queue_cycle) is round_robin_cycle,
            unnoted=frozenset(self._unnoted) if channel.ack_emulation else frozenset(queues),
            in_flight=tuple(in_flight),
        )

    def pause(self) -> None:
        """Lets no message come while there is no credit. Does nothing while a request is on its way."""
        if self._request is not None or self._idle.is_unused:
            return
        commands, in_flight = self._idle.in_flight(end=True)
        if in_flight:
            self._ask(commands, Request("", 0, 0, (), in_flight=tuple(in_flight)))

    def _ask(self, before: Sequence[Command], request: Request) -> None:
        self._gathers_until = None
        acks, on_acked = self._acks.commands(self._store)
        fetch = self._store.fetching.fetch_command(request, by_text=self._by_text)

        def on_replies(replies: list[Any]) -> None:
            self._idle.ended(replies[: len(before)])
            on_acked(replies[len(before) : -1])
            self._on_fetched(request, replies[-1])

        self._unclaimed[request.first] = request  # Redis may run it even if sending it fails
        self._connection.send([*before, *acks, fetch], on_replies)

    def _send_acks(self) -> None:
        self._gathers_until = None  # first: who acknowledges after this wakes the loop
        if self._acks:
            commands, on_acked = self._acks.commands(self._store)
            if commands:
                self._connection.send(commands, on_acked)

    def _on_fetched(self, request: Request, reply: Any) -> None:
        if not self._claim(request):
            self._idle.emptied(request.in_flight)
            self._consumer.answered(request)
            self._is_unsure = True
            return
        self._by_text = isinstance(reply, NoScriptError)
        if self._by_text:
            self._idle.may_have_more = True
            return
        if is_denied(reply):
            self._channel.stop_fetching(reply)
            return
        if clears(reply):
            self._rest(reply)
            return
        if isinstance(reply, Exception):
            raise reply
        self._resumes_at = None
        self._idle.emptied(request.in_flight)
        if request.most:
            try:
                found = self._store.fetching.fetched(request, reply)
                self._idle.note_paused(self._store.fetching.paused_in(request, reply))
                self._note(found, request.most)
            except LeaseEnded:
                self._consumer.renew(self._store, self._share)
                return
            if self._poller.loop_turns and not (self._is_closed or self._is_ending):
                self._deliver(before_wait=False)

    def _rest(self, error: Any) -> None:
        if self._resumes_at is None:
            logger.warning("Redis gives no messages now, and is asked again each second: %s", error)
        self._resumes_at = monotonic() + PASSING_S
        self._poller.wake_in(PASSING_S)

    def _note(self, found: Sequence[Fetched], most: int) -> None:
        self._idle.may_have_more = self._store.fetching.may_have_more(found, most)
        self.deliveries.add(found)
        for fetched in found:
            self._channel._queue_cycle.rotate(fetched.queue)
        # Without a loop, a callback may keep this thread busy. The request has ended only the waits of this fetcher.
        is_last = not self._shared.credit.left or (self._share and not self._poller.loop_turns)
        if found and not self._is_closed and is_last:
            self._shared.pause()

    def _deliver(self, *, before_wait: bool) -> None:
        if self.deliveries.deliver_turn(before_wait=before_wait, at_half=self._fetch_ahead):
            self._poller.wake()
