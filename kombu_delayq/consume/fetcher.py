"""Fetches messages for the consumers of one channel: what it does in each of its states, and what follows.

========== ======================================== ===============================================================
state      a turn of the loop                       what ends it
========== ======================================== ===============================================================
CLOSED     does nothing                             nothing; what is left goes back, also by the heartbeat
UNSURE     puts back what a lost reply has brought  that is done: one of the states below
DELIVERING calls callbacks, for some milliseconds   none is left to deliver: one of the states below
ASKED      does nothing                             the reply, with messages: DELIVERING; with none: WAITING;
                                                    with an error that passes: RESTING.
                                                    The connection is lost: UNSURE.
                                                    The heartbeat gives it up, as callbacks last long: DELIVERING
RESTING    does nothing                             a second is over: one of the states below
FULL       ends the waits, and lets Redis sort what an acknowledgement, a queue that begins: EAGER or WAITING
           has come
EAGER      asks, or gathers for more to ask for     a request is sent: ASKED. No credit is left: FULL
WAITING    blocks on each list that is empty, and   a message is in flight, or was seen: EAGER.
           looks at the others each second          No credit is left: FULL
========== ======================================== ===============================================================
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import redis
from kombu.log import get_logger
from kombu.utils.scheduling import round_robin_cycle
from redis.exceptions import NoScriptError, RedisError

from kombu_delayq.consume.credit import AHEAD, BATCH, Credit
from kombu_delayq.consume.deliveries import Deliveries
from kombu_delayq.consume.pipelined import OVERDUE_S, PipelinedConnection
from kombu_delayq.consume.requests import Requests
from kombu_delayq.consume.waits import MOST_WAITS, WaitBudget, Waits
from kombu_delayq.redis import PASSING_S, Command, clears, is_denied, make_room
from kombu_delayq.store import Fetched, InFlight, LeaseEnded, Request

if TYPE_CHECKING:
    from kombu_delayq.consume.consumer import Consumer
    from kombu_delayq.message import Message
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: Connections of a channel beside those that wait for messages: two of kombu's, and that of the fetcher.
OTHER_CONNECTIONS = 3
#: For how long a fetcher is busy with a message before its other messages go back, in s.
BUSY_S = 1.0
#: For how long acks and requests wait for more, in s, while the consumer has messages that it has not begun.
GATHER_S = 0.005


class State(Enum):
    """What a fetcher does; the first of these that holds. The head of this file says what follows each."""

    CLOSED = auto()
    UNSURE = auto()
    DELIVERING = auto()
    ASKED = auto()
    RESTING = auto()
    FULL = auto()
    EAGER = auto()
    WAITING = auto()


class Fetcher:
    """Fetches messages for the consumers of one channel.

    All methods but ``ack``, ``acks_later`` and ``help`` are for the thread that consumes.

    Args:
        channel: A channel of one of our transports.
        poller: The poller of its transport.
        credit: Of a channel with several fetchers, what they share.
        group: The slot group of its queues.
        pool_of: Returns the pool of the node that has these queues now.
        watch: Called with the file descriptor of a new connection.
    """

    def __init__(
        self,
        channel: Any,
        poller: Any,
        credit: Credit | None = None,
        group: str = "",
        pool_of: Callable[[], redis.ConnectionPool] | None = None,
        watch: Callable[[int, PipelinedConnection], None] | None = None,
    ) -> None:
        self._channel = channel
        self._poller = poller
        if "max_connections" not in channel.connection.client.transport_options:
            make_room(channel.async_pool, MOST_WAITS + OTHER_CONNECTIONS)
        self._credit = credit or Credit(channel, poller, [self], WaitBudget(MOST_WAITS), self.pause)
        self._group = group
        pool_of = pool_of or (lambda: channel.async_pool)
        overdue_s = float(getattr(channel, "health_check_interval", None) or OVERDUE_S)
        connect = partial(PipelinedConnection, pool_of, watch or poller.watch, poller.forget, overdue_s)
        self._consumer: Consumer = channel.consumer
        self.held, self.going_on = self._consumer.held, self._consumer.going_on
        self._requests = Requests(connect(), self._consumer, self._group)
        self._acks = self._requests.acks
        self._waits = Waits(connect, self._credit.budget, self._requests.connection.send, self._on_arrival)
        self.deliveries = Deliveries(channel, self.ack, self._waits.note_priority)
        self._unnoted: set[str] = set()
        self._begun: set[str] = set()
        self._turned_at = monotonic()
        self._is_closed = self._is_ending = False
        self._kept_store: DelayStore | None = None
        self._resumes_at: float | None = None  # after an error that passes
        self._again_at: float | None = None  # when messages may go that may not now
        self._is_woken = self._wants_process = False
        self._gathers_until: float | None = None  # when acks and requests that are gathered are sent at the latest

    @property
    def state(self) -> State:
        """What it does now."""
        if self._is_closed:
            return State.CLOSED
        if self._requests.are_unsure:
            return State.UNSURE
        if self.deliveries:
            return State.DELIVERING
        if self._requests.current is not None:
            return State.ASKED
        if self._resumes_at is not None and monotonic() < self._resumes_at:
            return State.RESTING
        # A worker's channels for remote control and events have no queues here, and turn as often as the others.
        if not (self._begun and self._credit.left and self.queues):
            return State.FULL
        return State.EAGER if self._may_have_more else State.WAITING

    @property
    def queues(self) -> list[str]:
        """Names of the queues from which it fetches now."""
        active: list[str] = [*self._begun] if self._group else self._channel.active_queues
        return active

    @property
    def undelivered(self) -> int:
        """How many messages were fetched and not delivered."""
        return len(self.deliveries)

    @property
    def asked(self) -> int:
        """How many messages may come in reply to the request on its way; 0 for a late one, which nobody waits for."""
        return self._requests.asked

    @property
    def is_eager(self) -> bool:
        """Whether it asks for messages as soon as it may."""
        is_free = self._requests.current is None and not self.deliveries
        return is_free and self._may_have_more and bool(self.queues)

    @property
    def connections(self) -> list[PipelinedConnection]:
        """Its connections: the one over which it asks for messages, and then those that wait for messages."""
        return [self._requests.connection, *self._waits.connections]

    def begin(self, queue: str, *, no_ack: bool) -> None:
        """Fetches messages of a queue from now on, too."""
        (self._unnoted.add if no_ack else self._unnoted.discard)(queue)
        self._begun.add(queue)
        self._waits.may_have_more = True

    def end(self, queue: str) -> None:
        """Fetches no further messages of a queue, and puts those back that have not been delivered."""
        self._begun.discard(queue)
        self._waits.end(self._store, queue)
        self._waits.keep(self.queues)
        if not self.queues or ((request := self._requests.current) and queue in request.queues):
            self._read_last()  # what it brings goes back behind what was fetched before
        self.deliveries.put_back(self._store, queue)

    def has_raised(self, error: BaseException) -> bool:
        """Whether an error is that of a callback, so that a message was not taken."""
        return error is self.deliveries.error

    def get(self, queue: str, *, no_ack: bool) -> "Message | None":
        """Fetches one message of a queue, a round trip; None if there is none."""
        request = Request(most=1, queues=[queue], unnoted=[queue] if no_ack else [])
        found = self._consumer.fetch(self._store, self._group, request)
        return next((self.deliveries.message_of(self.deliveries.hold(fetched)) for fetched in found), None)

    def note_turn(self) -> None:
        """Notes that the thread that consumes is not busy."""
        self._turned_at = monotonic()

    def turn(self) -> None:
        """Does what there is to do in its state, and then sends acknowledgements that have waited long enough."""
        self.note_turn()
        is_lost = not self._requests.check()
        self._waits.check()
        if is_lost:
            self._lost()
        if self._requests.are_unsure:
            self._requests.recover(self._store)
        state = self.state
        if state is State.DELIVERING:
            self._send_acks()  # the rest may keep this thread busy
            self._deliver(before_wait=True)
        elif self._go_on(state):
            return  # acknowledgements go with the request that is gathered
        is_over = self._gathers_until is None or monotonic() >= self._gathers_until
        # Otherwise they go with the next request. Without any, a request that is gathered keeps its time.
        if not self.asked and (not self._gathers() if self._acks else is_over):
            self._send_acks()

    def _go_on(self, state: State) -> bool:
        """Does what there is to do in a state without messages. Returns whether a request is gathered."""
        if state is State.FULL:
            self.pause()
            if self._again_at == 0.0 and self._requests.current is None and self.queues:
                self._ask([], self._request_for(self.queues, 0, ()))
        elif state is State.WAITING:
            self._waits.wait(self._store, self._consumer.name_in(self._group), self.queues)
        elif state is State.EAGER:
            if self._gathers():
                return True
            if credit := self._credit.of(self):
                self._fetch(self.queues, credit)
        return False

    def turn_apart(self) -> None:
        """Does what ``turn`` does by commands of the store, each a round trip, and does not wait for messages."""
        self.note_turn()
        self._acks.send(self._store)
        if not self.deliveries and (queues := self.queues) and (credit := self._credit.of(self)):
            request = self._request_for(queues, credit, self._waits.arrived)
            found = self._consumer.fetch(self._store, self._group, request)
            self._waits.emptied(request.in_flight)
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
        elif not (self._poller.is_own_thread or self._requests.current or self.deliveries.are_under_way) and (
            self._gathers_until is None or len(self._acks) >= self._channel.backlog()
        ):
            self._poller.wake()  # otherwise the loop turns soon

    def wake(self) -> None:
        """Asks once more for messages, because some may go now that could not before. Any thread may call this."""
        self._is_woken = True
        self._poller.wake()

    def note_free(self) -> None:
        """Notes that a process of the consumer is free. Any thread may call this."""
        if self._wants_process:
            self._wants_process = False
            self.wake()

    def excuse(self, tag: str) -> None:
        """Notes that a script has removed a message, which an acknowledgement under way does not find."""
        self._acks.excuse(tag)

    def note_lists(self, lists: Mapping[str, bool]) -> None:
        """Learns from the leader which lists have messages. Any thread may call this."""
        self._poller.told, self._poller.told_at = lists, monotonic()
        if self._waits.note_lists(lists) and self.state is State.WAITING:
            self._waits.may_have_more = True
            self._poller.wake()

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
            if (request := self._requests.current) and request.most and self._notes(request.queues):
                self._requests.give_up(store, request)
            self.deliveries.put_back(store)
        if max(self.deliveries.busy_s, busy_s) > BUSY_S or (is_late and self._poller.is_left):
            self._waits.end(store, is_own_thread=False)

    def close(self) -> None:
        """Puts back what has not been delivered, and sends what is left to send. Raises the first error after all."""
        self._is_closed = True
        self._read_last()
        self._acks.repeat()
        failed: Exception | None = None
        for settle in (self._waits.end, self._requests.recover, self.deliveries.put_back, self._acks.send):
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
        self._waits.lose(connection)
        if self._requests.connection.lose(connection):
            self._lost()

    def drop(self, *, for_good: bool = False) -> None:
        """Closes all connections. If that is ``for_good``, the heartbeat does what is left to do."""
        if for_good:
            self._is_closed = True
            self._consumer.lost.leave(self._group, self._settle)
        self._waits.close()
        self._requests.connection.close()
        self._lost()

    def pause(self) -> None:
        """Lets no message come while there is no credit. Does nothing while a request is on its way."""
        if self._requests.current is not None or self._waits.is_unused:
            return
        commands, in_flight = self._waits.end_all()
        if in_flight:
            self._ask(commands, Request(in_flight=tuple(in_flight)))

    def _fetch(self, queues: Sequence[str], credit: int) -> None:
        # Without a loop, the callback that gets the message may keep this thread busy.
        commands, in_flight = ([], self._waits.arrived) if self._poller.loop_turns else self._waits.end_all()
        self._ask(commands, self._consumer.named(self._request_for(queues, credit, in_flight), self._group))

    def _fetch_ahead(self) -> None:
        """Asks for messages while the last of those before run, so that neither Redis nor this thread waits."""
        is_free = self._requests.current is None and self._resumes_at is None and self._may_have_more
        if is_free and self._requests.connection.is_open and (queues := self.queues) and self._notes(queues):
            credit = self._credit.of(self, ahead=True)
            if credit >= max(self.undelivered, AHEAD):
                self._fetch(queues, credit)

    @property
    def _may_have_more(self) -> bool:
        """Whether a request may bring a message."""
        is_over = self._again_at is not None and monotonic() >= self._again_at
        return self._waits.may_have_more or self._is_woken or is_over

    def _request_for(self, queues: Sequence[str], credit: int, in_flight: Iterable[InFlight]) -> Request:
        """Returns a request for messages, without the name of a consumer and a number."""
        channel = self._channel
        self._is_woken, self._again_at = self._is_woken and not credit, None
        return Request(
            most=credit,
            queues=queues if self._group else channel._queue_cycle.consume(len(queues)),
            in_turns=type(channel._queue_cycle) is round_robin_cycle,
            unnoted=frozenset(self._unnoted) if channel.ack_emulation else frozenset(queues),
            in_flight=tuple(in_flight),
            free=self._credit.free,
        )

    def _ask(self, before: Sequence[Command], request: Request) -> None:
        self._gathers_until = None
        self._requests.ask(self._store, before, request, self._waits.ended, self._on_reply)

    def _send_acks(self) -> None:
        self._gathers_until = None  # first: who acknowledges after this wakes the loop
        self._requests.send_acks(self._store)

    def _gathers(self) -> bool:
        """Whether a request, or acknowledgements, wait for more: many small ones cost Redis and this process more.

        They wait at most ``GATHER_S``, and only while fewer messages are missing than the consumer has not begun.
        """
        unbegun = self._channel.backlog()
        if unbegun <= 0 or self._credit.left >= min(unbegun, BATCH):
            return False
        if self._gathers_until is None:
            self._gathers_until = monotonic() + GATHER_S
            self._poller.wake_in(GATHER_S)
        return monotonic() < self._gathers_until

    def _on_arrival(self, queue: str) -> None:
        """Asks at once for a message that is in flight, which the next turn would do otherwise."""
        if self._poller.loop_turns and queue in self.queues:
            self._go_on(self.state)

    def _on_reply(self, request: Request, reply: Any) -> None:
        """Takes the reply to a request; None if it was given up, and what it has brought goes back."""
        if isinstance(reply, Exception):
            self._on_error(reply)
            return
        self._resumes_at = None
        self._waits.emptied(request.in_flight)
        if reply is None:
            return
        if not request.most:
            self._note_again(reply)
            return
        try:
            found = self._store.fetching.fetched(request, reply)
        except LeaseEnded:
            self._consumer.renew(self._store, self._group)
            return
        self._note_again(reply)
        self._waits.note_paused(self._store.fetching.paused_in(request, reply))
        self._note(found, request.most)
        if self._poller.loop_turns and not (self._is_closed or self._is_ending):
            self._deliver(before_wait=False)

    def _note_again(self, reply: Any) -> None:
        """Notes when to ask again for messages that may not go now."""
        again_s = self._store.fetching.again_s(reply)
        if again_s is not None and again_s < inf:
            if not self._consumer.subscribed:  # no script can wake it
                again_s = min(again_s, PASSING_S)
            self._again_at = monotonic() + again_s if again_s else 0.0
            self._poller.wake_in(again_s)
        self._wants_process |= again_s == inf or (again_s is not None and not self._credit.free)
        if self._wants_process and self._credit.free:  # freed since the request was sent
            self.note_free()

    def _on_error(self, error: Exception) -> None:
        if isinstance(error, NoScriptError):  # it is sent again, by its text
            self._waits.may_have_more = True
        elif is_denied(error):
            self._channel.stop_fetching(error)
        elif clears(error):
            if self._resumes_at is None:
                logger.warning("Redis gives no messages now, and is asked again each second: %s", error)
            self._resumes_at = monotonic() + PASSING_S
            self._poller.wake_in(PASSING_S)
        else:
            raise error

    def _note(self, found: Sequence[Fetched], most: int) -> None:
        self._waits.may_have_more = self._store.fetching.may_have_more(found, most)
        self.deliveries.add(found)
        for fetched in found:
            self._channel._queue_cycle.rotate(fetched.queue)
        # Without a loop, a callback may keep this thread busy. The request has ended only the waits of this fetcher.
        is_last = not self._credit.left or (self._group and not self._poller.loop_turns)
        if found and not self._is_closed and is_last:
            self._credit.pause()

    def _deliver(self, *, before_wait: bool) -> None:
        if self.deliveries.deliver_turn(before_wait=before_wait, at_half=self._fetch_ahead):
            self._poller.wake()

    def _notes(self, queues: Iterable[str]) -> bool:
        """Whether all that is fetched from queues is noted as unacked, so that it can be put back."""
        return bool(self._channel.ack_emulation) and self._unnoted.isdisjoint(queues)

    def _read_last(self) -> None:
        """Reads the reply to the last request, if the connection still brings it soon, and does not deliver it yet."""
        self._is_ending = True
        try:
            if not self._requests.read_last():
                self._lost()
        finally:
            self._is_ending = False

    def _lost(self) -> None:
        """Gives up the replies that the lost connection would have brought."""
        self._requests.lose()
        self._waits.may_have_more = True

    def _settle(self, store: "DelayStore") -> None:
        try:
            self.deliveries.put_back(store)
        finally:
            self._acks.send(store)

    @property
    def _store(self) -> "DelayStore":
        if self._channel.connection is not None or self._kept_store is None:
            self._kept_store = self._channel.store
        return self._kept_store
