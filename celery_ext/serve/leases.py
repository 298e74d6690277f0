"""Messages that consumers over HTTP have received, each take with a lease. Knows the store, and no HTTP."""

import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from secrets import token_hex
from time import monotonic
from typing import NamedTuple

from celery import Celery
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.message import (
    Due,
    HeldNote,
    Message,
    canonical,
    eta_of,
    fault_of,
    headers_of,
    priority_of,
    read,
    read_note,
    redelivered,
    stamp,
    task_id_of,
    to_json,
    with_eta,
)
from kombu_delayq.store import DelayStore, Fetched, LeaseEnded, Offer, QueueWaits, Request, Requeued, http_consumer
from kombu_delayq.text import as_bytes, as_text, readable

logger = logging.getLogger(__name__)


#: Most messages of a lease.
MOST = 100
#: In a cluster, the queue is behind the number of messages and the random characters.
_ID = re.compile(r"([1-9][0-9]{0,2})-[0-9a-f]{32}-([A-Za-z0-9_-]+)")


class LeaseGone(Exception):
    """The lease has ended, or holds nothing any more, or never was the caller's."""


class _HttpLease(NamedTuple):
    """A lease: name of its consumer, the queue whose messages it has, and the most that it may have."""

    name: str
    queue: str
    most: int

    def tag(self, number: str | int) -> str:
        """Returns the delivery tag of a message."""
        return f"{self.name}.{number}"


#: Queues to which kombu and Celery send commands, replies to them, and events: of every node its own.
_OWN = re.compile(r"celeryev\..*|.*\.pidbox|.*\.reply\.celery\.pidbox", re.DOTALL)


def is_broadcast(app: Celery, queue: str) -> bool:
    """Whether a queue is no list of messages: it belongs to Celery's remote control and events, or to a fanout."""
    declared = app.amqp.queues.get(queue) if queue in app.amqp.queues else None
    exchange = getattr(declared, "exchange", None)
    return bool(_OWN.fullmatch(queue)) or getattr(exchange, "type", None) == "fanout"


#: For about how long, in s, one call goes on where messages that are due later stand before others.
PATIENCE_S = 1.0


@dataclass(frozen=True)
class Received:
    """Messages that a caller has received.

    Attributes:
        lease: Id of their lease.
        ends_ms: When it ends, by Redis's clock, ms since the epoch.
        messages: By their tags, in the order in which they were in the queue.
    """

    lease: str
    ends_ms: float
    messages: dict[str, Message]


@dataclass(frozen=True)
class Settled:
    """What became of messages.

    Attributes:
        done: Tags of those with which it was done.
        missing: Tags of those that the lease did not hold any more.
    """

    done: list[str]
    missing: list[str]


class HttpLeases:
    """Hands messages out to the callers of a server, and takes back what they have done with them.

    Args:
        store: The store of the broker.
    """

    def __init__(self, store: DelayStore) -> None:
        self._store = store

    def receive(self, caller: str, queue: str, most: int, lease_s: float) -> Received | None:
        """Takes messages of a queue. What is due later goes to the store, and what is no message is dropped.

        Args:
            caller: Name of the caller, who alone can use the lease.
            queue: Name of the queue.
            most: The most messages, 1 to ``MOST``.
            lease_s: Length of the lease in s.

        Returns:
            The messages; None if there are none.
        """
        until = monotonic() + PATIENCE_S
        while self._store.fetching.available([queue])[0]:
            received = self._receive(caller, queue, most, lease_s)
            if received is None or received.messages:
                return received
            self._store.consumers.leave([http_consumer(caller, received.lease)], queue)
            if monotonic() > until:
                break
        return None

    def ack(self, caller: str, lease_id: str, tags: Sequence[str]) -> Settled:
        """Removes messages for good.

        A lease that has just ended may still acknowledge what nobody has given back yet.

        Raises:
            LeaseGone: None of the messages is held, nor is the lease known.
            ValueError: There is no such tag in any lease.
        """
        lease = self._lease(caller, lease_id, tags)
        return self._settled(lease, tags, self._store.fetching.ack(list(map(lease.tag, tags)), lease.queue))

    def release(self, caller: str, lease_id: str, tags: Sequence[str], delay_s: float | None = None) -> Settled:
        """Puts messages back into their queue, marked as redelivered.

        Args:
            caller: Name of the caller.
            lease_id: Id of the lease.
            tags: Tags of the messages.
            delay_s: After how long they are delivered again, in s; None to be the next of their queue at once.

        Raises:
            LeaseGone: None of the messages is held, nor is the lease known.
            ValueError: There is no such tag in any lease.
            UnreadableMessage: The eta of a message cannot be changed; it stays in hand, and so do those after it.
        """
        lease = self._lease(caller, lease_id, tags)
        if delay_s is not None:
            return self._settled(lease, tags, self._put_off(lease, tags, delay_s))
        again = stamp()
        gone = self._put_back(lease, tags, lambda note: to_json(redelivered(note.message, **again)), redelivers=True)
        return self._settled(lease, tags, gone)

    def undo(self, caller: str, received: Received) -> None:
        """Puts messages back as they were, because the caller has gone before it got them."""
        lease = self._lease(caller, received.lease)
        self._put_back(lease, [*received.messages], lambda note: note.raw, redelivers=False)
        self._forget_if_empty(lease)

    def extend(self, caller: str, lease_id: str, lease_s: float) -> tuple[float, list[str]]:
        """Lets a lease end later, or sooner, than it would have.

        Args:
            caller: Name of the caller.
            lease_id: Id of the lease.
            lease_s: Its length from now, in s.

        Returns:
            When it ends, by Redis's clock, ms since the epoch, and the tags of what it still holds.

        Raises:
            LeaseGone: The messages have gone back, or all are acknowledged.
        """
        lease = self._lease(caller, lease_id)
        self._check_known(lease)
        ends_ms, held = self._store.now_ms() + 1000 * lease_s, self._held(lease)
        if not self._store.consumers.heartbeat(lease.name, [lease.queue], held, ttl_s=lease_s):
            raise LeaseGone
        return ends_ms, [tag.rpartition(".")[2] for tag in held]

    def _lease(self, caller: str, lease_id: str, tags: Sequence[str] = ()) -> _HttpLease:
        """Reads the id of a lease.

        Raises:
            LeaseGone: There never was such a lease here.
            ValueError: There is no such tag in any lease.
        """
        match = _ID.fullmatch(lease_id)
        if match is None:
            raise LeaseGone
        for tag in tags:
            if not (tag.isascii() and tag.isdecimal() and 1 <= int(tag) <= int(match[1])):
                raise ValueError(f"{tag!r} is no tag of this lease")
        try:
            queue = as_text(urlsafe_b64decode(f"{match[2]}==="))
        except ValueError:
            raise LeaseGone from None
        if not self._store.keys.is_usable(queue):
            raise LeaseGone
        return _HttpLease(http_consumer(caller, lease_id), queue, int(match[1]))

    def _receive(self, caller: str, queue: str, most: int, lease_s: float) -> Received | None:
        lease = f"{most}-{token_hex(16)}-{urlsafe_b64encode(as_bytes(queue)).decode().rstrip('=')}"
        self._store.consumers.note_queues([queue])
        name = http_consumer(caller, lease)
        now_ms = self._store.now_ms()
        self._store.consumers.heartbeat(name, [queue], is_new=True, ttl_s=lease_s)
        self._store.consumers.note_queues([queue])  # somebody may have dropped the name before there was the lease
        try:
            taken = self._store.fetching.fetch(Request(name, 1, most, [queue]))
        except LeaseEnded:  # Redis stood still for longer than the lease
            return None
        messages, stuck = {}, False
        for one in taken:
            if (message := self._message_of(one)) is None:
                continue
            due = eta_of(message)
            try:
                waits = due is not None and due.ms > now_ms and self._adopt(one.tag, queue, message, due) != "due"
            except ResponseError as error:
                waits = stuck = True
                logger.warning(
                    "a message of queue %r that is due later stays in hand until its lease ends: %s",
                    *map(readable, (queue, error)),
                )
            if not waits:
                messages[one.tag.rpartition(".")[2]] = message
        self._count_waits(queue, messages.values())
        return None if stuck and not messages else Received(lease, now_ms + 1000 * lease_s, messages)

    def _count_waits(self, queue: str, messages: Iterable[Message]) -> None:
        """Counts how long messages waited, as a worker does; the caller gets them also where Redis does not count."""
        waits = QueueWaits()
        waits.begin(queue)
        for message in messages:
            waits.note(queue, message)
        try:
            waits.flush(self._store.figures.count_minute)
        except (RedisError, OSError) as error:
            logger.debug("how long messages of queue %r waited is not counted: %s", *map(readable, (queue, str(error))))

    def _message_of(self, taken: Fetched) -> Message | None:
        """Returns a message; drops what is none, as a worker does."""
        fault = fault_of(taken.body)
        if fault is None:
            return read(taken.body)
        logger.error(
            "queue %r had something that is no message, and that is dropped: %s", *map(readable, (taken.queue, fault))
        )
        self._store.fetching.ack([taken.tag], taken.queue)
        return None

    def _adopt(self, tag: str, queue: str, message: Message, due: Due) -> str:
        """Moves a message that is due later into the store. Returns what the store says."""
        message = {**message, "properties": dict(message["properties"])}
        identity, body = canonical(message, due.task_id)
        offer = Offer(identity, repr(due.ms), priority_of(message), body)
        return self._store.delivery.adopt(queue, offer, tag)

    def _notes(self, lease: _HttpLease, tags: Sequence[str]) -> dict[str, HeldNote]:
        """Returns what is still held, those first that came first."""
        held = self._store.consumers.notes(list(map(lease.tag, sorted(tags, key=int))), lease.queue)
        notes = {one.tag: read_note(as_bytes(one.note)) for one in held}
        return {tag: note for tag, note in notes.items() if note is not None}

    def _put_back(
        self, lease: _HttpLease, tags: Sequence[str], body_of: Callable[[HeldNote], str | bytes], *, redelivers: bool
    ) -> list[str]:
        """Puts messages back to be consumed next, in their old order. Returns the tags that were not held."""
        notes = self._notes(lease, tags)
        rows = [Requeued(tag, note.routing_key, note.priority, body_of(note)) for tag, note in notes.items()]
        gone = self._store.fetching.requeue(reversed(rows), "next", redelivers=redelivers)
        return [tag for tag in map(lease.tag, tags) if tag in gone or tag not in notes]

    def _put_off(self, lease: _HttpLease, tags: Sequence[str], delay_s: float) -> list[str]:
        """Puts messages back to be delivered later. Returns the tags that were not held."""
        self._store.options.check_delay(delay_s)
        due_ms = self._store.now_ms() + 1000 * delay_s
        notes = self._notes(lease, tags)
        gone = [tag for tag in map(lease.tag, tags) if tag not in notes]
        for tag, note in notes.items():
            message = redelivered(read(with_eta(note.raw, due_ms)))
            old = eta_of(message)
            task_id = task_id_of(headers_of(message)) or (old and old.task_id)
            place = self._adopt(tag, note.routing_key, message, Due(due_ms, False, task_id))
            if place == "due":  # the delay was over before Redis got the message
                row = Requeued(tag, note.routing_key, note.priority, to_json(message))
                self._store.fetching.requeue([row], "next", redelivers=True)
            elif place == "gone":
                gone.append(tag)
        return gone

    def _settled(self, lease: _HttpLease, tags: Sequence[str], gone: Sequence[str]) -> Settled:
        missing = [tag for tag in tags if lease.tag(tag) in gone]
        if len(missing) == len(tags):
            self._check_known(lease)
        else:
            self._forget_if_empty(lease)
        return Settled([tag for tag in tags if tag not in missing], missing)

    def _check_known(self, lease: _HttpLease) -> None:
        consumer = self._store.consumers.find(lease.name, lease.queue)
        if consumer is None or consumer.left_ms == -inf:
            raise LeaseGone

    def _held(self, lease: _HttpLease) -> list[str]:
        return self._store.fetching.held(list(map(lease.tag, range(1, lease.most + 1))), lease.queue)

    def _forget_if_empty(self, lease: _HttpLease) -> None:
        if not self._held(lease):
            self._store.consumers.leave([lease.name], lease.queue)
