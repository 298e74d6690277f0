"""The brokers that a test may use, one in memory or a Redis, and what is due next there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from os import getpid
from typing import Any, NamedTuple

from celery import Celery
from kombu.connection import Connection
from kombu.message import Message
from kombu.serialization import prepare_accept_content

from celery_ext.connection import TRANSPORT, open_store
from celery_ext.dead_letters import DeadLetter, letters
from celery_ext.testing.apps import active_apps
from celery_ext.testing.memory_store import MemoryStore
from celery_ext.testing.memory_transport import MemoryBroker
from celery_ext.testing.sending import Clock, Sending, Sent
from celery_ext.waiting import READABLE, DelayedTask, by_id
from kombu_delayq.message import Due, priority_of, to_json
from kombu_delayq.options import STORES
from kombu_delayq.store import DelayStore, Offer, Waiting

_numbers = count()
#: Transport options that say how a server is reached, or which keys are whose: those of a test's server are others.
_OF_SERVER = ("global_keyprefix", "master_name", "sentinel_kwargs", *STORES)
MEMORY = "celery_ext.testing.memory_transport:Transport"


class Broker:
    """A broker of a test, over a connection of its own.

    Args:
        connection: The connection.
        sending: What the apps have sent.
    """

    def __init__(self, connection: Connection, sending: Sending) -> None:
        self._connection, self._sending = connection, sending
        self._known: dict[Waiting, DelayedTask] = {}
        self._taken = 0

    @property
    def store(self) -> DelayStore:
        """The delayed messages."""
        return open_store(self._connection)

    def waiting(self) -> list[DelayedTask]:
        """Returns all delayed messages."""
        store, accept, known = self.store, self._accept(), self._known
        messages = [message for queue in store.queues.names() for message in by_id.browse(store, queue)]
        # A DelayedTask keeps what it has read of its message.
        self._known = {message: known.get(message) or DelayedTask(message, accept) for message in messages}
        return list(self._known.values())

    def stamp(self) -> tuple[int, int] | None:
        """Returns what stays the same until a task is sent, or a delayed message changes other than by ``take``.

        None for a Redis, which does not tell.
        """
        store: Any = self.store
        if not isinstance(store, MemoryStore):
            return None
        return store.changes - self._taken, self._sending.latest_number

    def take(self, message: Waiting) -> bool:
        """Takes a delayed message out. False if it has left."""
        taken = self.store.lookup.discard(message.queue, [(message, "")]) == ["cancelled"]
        self._taken += taken
        return taken

    def message(self, raw: dict[str, Any]) -> Message:
        """Returns a message as a consumer gets it."""
        channel = self._connection.default_channel
        message: Message = channel.Message(raw, channel=channel)
        message.accept = self._accept()
        return message

    def ready(self) -> list[tuple[str, Message]]:
        """Takes all messages out of the queues, but for dead letters, in the order of sending. Each with its queue."""
        found = []
        channel = self._connection.default_channel
        for queue in self._queues():
            with suppress(*channel.connection.client.channel_errors):  # nobody has declared the queue
                while (message := channel.basic_get(queue, no_ack=True)) is not None:
                    message.accept = self._accept()
                    found.append((queue, message))
        return sorted(found, key=lambda one: self._number(one[1]))

    def requeue(self, queue: str, message: Message) -> None:
        """Puts a message back that its consumer has rejected."""
        message._raw["properties"].setdefault("delivery_info", {})["redelivered"] = True
        self.put_back(queue, message)

    def put_back(self, queue: str, message: Message) -> None:
        """Puts a message back as it is."""
        raw = message._raw
        self.store.delivery.push(queue, Offer(message.delivery_tag, "", priority_of(raw), to_json(raw)))

    def delay(self, queue: str, message: Message, seconds: float) -> None:
        """Lets a message wait for so many s."""
        raw, store = message._raw, self.store
        due = Due(store.now_ms() + 1000 * seconds, relative=False, task_id=message.properties.get("correlation_id"))
        offer = self._connection.default_channel.offer_of({**raw, "properties": dict(raw["properties"])}, due)
        store.delivery.offer(queue, offer)

    def dead_letters(self) -> list[DeadLetter]:
        """Returns the latest dead letters in the queues that the apps name, of each queue the oldest first."""
        graves = self._graves()
        return [letter for letter in letters.latest(self.store, graves) if letter.buried_in in graves]

    def clear(self) -> None:
        """Removes all delayed messages, and all in the queues, dead letters too."""
        store = self.store
        for queue in self._graves():
            with suppress(*self._connection.channel_errors):  # nobody has declared the queue
                self._connection.default_channel.queue_purge(queue)
        for queue in store.queues.names():
            store.queues.purge(queue)
        self.ready()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.release()

    def _accept(self) -> set[str]:
        kinds = [app.conf.accept_content for sender in self._sending.senders if (app := sender()) is not None]
        return {*READABLE}.union(*(prepare_accept_content(kind) for kind in kinds if kind))

    def _queues(self) -> set[str]:
        queues = (app.amqp.queues for app in active_apps() if "amqp" in vars(app))
        return {*self.store.queues.names()}.union(*queues) - self._graves()

    def _graves(self) -> set[str]:
        tasks = (task for app in active_apps() for task in app._tasks.values())
        named = {getattr(task, "dead_letter_queue", None) for task in tasks}
        return {name for name in named if isinstance(name, str)}

    def _number(self, message: Message) -> int:
        call = self._sending.sent.get(str(message.properties.get("correlation_id")))
        return -1 if call is None else call.number


def declare(app: Celery) -> None:
    """Declares the queues of an app, as its workers do. Without it a message to an exchange would reach no queue.

    On Redis a process takes each exchange for a direct one that it has not declared itself, so others are left out.
    Source: kombu.transport.virtual.base.Channel.typeof
    """
    with app.connection_for_write() as connection:
        for queue in app.amqp.queues.values():
            if queue.exchange.type == "direct":
                queue(connection.default_channel).declare()


@contextmanager
def memory(clock: Clock, *, shared: bool) -> Iterator[Any]:
    """Makes a broker in memory; shared with workers of the URL ``memory://`` or not. Yields what connects an app."""
    broker = MemoryBroker(f"delayed-tasks-{next(_numbers)}", clock, shared=shared)

    def connect(app: Any) -> Connection:
        given = {} if app is None else dict(app.conf.broker_transport_options or {})
        return Connection(broker.name, transport=MEMORY, transport_options=given)

    yield connect
    if not shared:
        broker.queues.clear()


@contextmanager
def redis(url: str) -> Iterator[Any]:
    """Uses a Redis, under a key prefix of its own, whose keys it removes at the end. Yields what connects an app."""
    prefix = f"delayed-tasks-{getpid()}-{next(_numbers)}:"

    def connect(app: Any) -> Connection:
        given = {} if app is None else dict(app.conf.broker_transport_options or {})
        kept = {name: value for name, value in given.items() if name not in _OF_SERVER}
        return Connection(url, transport=TRANSPORT, transport_options={**kept, "global_keyprefix": prefix})

    yield connect
    with connect(None) as connection:
        client = open_store(connection).client
        keys = list(client.scan_iter(f"*{prefix}*", count=1000))
        if keys:
            client.delete(*keys)


class _Entry(NamedTuple):
    """A task that waits, and what its place depends on.

    Attributes:
        task: The task.
        latest: The latest call of its id; with another one, the place may be another.
        is_countdown: Whether it is due by the clock that stands still.
        place: When it is due by its clock, s since the epoch, to the ms; and its number.
    """

    task: DelayedTask
    latest: Sent | None
    is_countdown: bool
    place: tuple[float, int]


class Agenda:
    """The tasks that wait, in the order in which they come due. It reads them anew when the broker has changed.

    Countdowns and moments are due by clocks of their own, which drift apart while the test runs. So there is an order
    for each of both.

    Args:
        broker: Where they wait.
        sending: What the apps have sent.
    """

    def __init__(self, broker: Broker, sending: Sending) -> None:
        self._broker, self._sending = broker, sending
        self._known: dict[Waiting, _Entry] = {}
        self._orders: tuple[list[_Entry], list[_Entry]] = ([], [])
        self._stamp: tuple[int, int] | None = None

    def take(self, is_due: Callable[[DelayedTask], bool]) -> DelayedTask | None:
        """Returns the first task that is due, and forgets it; None if none is.

        Args:
            is_due: Whether a task is due.
        """
        self._look()
        heads = [
            (self.place(entry.task), order, entry)
            for order in self._orders
            if (entry := next((one for one in order if is_due(one.task)), None)) is not None
        ]
        if not heads:
            return None
        _, order, entry = min(heads, key=lambda head: head[0])
        order.remove(entry)
        return entry.task

    def place(self, task: DelayedTask) -> tuple[float, int]:
        """Returns the place of a task in the order of all: in how many s it is due, to the ms, and its number."""
        call = self._sending.call_of(task)
        # To the ms: sums of countdowns differ in their last digits.
        return round(self._sending.left_s(task), 3), -1 if call is None else call.number

    def _look(self) -> None:
        stamp = self._broker.stamp()
        if stamp is not None and stamp == self._stamp:
            return
        self._stamp, known = stamp, self._known
        self._known = {task.message: self._entry(known.get(task.message), task) for task in self._broker.waiting()}
        self._orders = ([], [])
        for entry in sorted(self._known.values(), key=lambda one: one.place):
            self._orders[entry.is_countdown].append(entry)

    def _entry(self, known: _Entry | None, task: DelayedTask) -> _Entry:
        if known is not None and known.latest is self._sending.sent.get(task.id):
            return known
        call = self._sending.call_of(task)
        place = round(self._sending.due_ms(task) / 1000, 3), -1 if call is None else call.number
        return _Entry(task, self._sending.sent.get(task.id), call is not None and call.is_countdown, place)
