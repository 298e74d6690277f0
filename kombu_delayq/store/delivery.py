"""The store's operations on the way of a message: offered, kept until it is due, transferred to its queue."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.message import Became
from kombu_delayq.options import LAYOUTS, QueueLimits
from kombu_delayq.redis import (
    Call,
    Command,
    HashKey,
    Key,
    ListKey,
    Rows,
    SendAhead,
    Stored,
    StringKey,
    ZSetKeys,
    operation,
    time_ms,
)
from kombu_delayq.store.client import MOST_QUEUES, HeldKeys, Into, Lists, StoreClient
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import MAX_DUPLICATES
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import (
    DelayedQueue,
    Offer,
    Offered,
    PageId,
    QueueHeads,
    TooLate,
    Transferred,
    rows_of,
)
from kombu_delayq.store.wake import WakeListener
from kombu_delayq.text import as_bytes, as_text, digest

logger = get_logger(__name__)

#: How long Redis recognizes a repeated page of ``send_many``, in ms; longer than it takes to notice a lost connection.
PAGE_TTL_MS = 120_000


class Batch(NamedTuple):
    """What a transfer gets of a queue beside its lists."""

    keys: Stored
    most: int
    max_bytes: int
    counts: Key


@operation()
def offer(*, into: Into, expire: int, rows: Rows[Offer]) -> Offered: ...
@operation()
def offer_once(
    *, into: Into, expire: int, mode: str, count: int, returning: bool, rows: Rows[Offer]
) -> tuple[str, list[str], list[str], list[bytes]]: ...
@operation()
def put(
    *, sender: StringKey, into: Into, expire: int, number: int, ttl: int, lists: Lists, rows: Rows[Offer]
) -> str: ...
@operation()
def adopt(*, into: Into, expire: int, held: HeldKeys, tag: str, offer: Offer) -> str: ...
@operation()
def give_back(*, ready: ListKey, body: str) -> int: ...
@operation(layout="hash")
def heads(*, dues: ZSetKeys) -> list[float | None]: ...
@operation()
def transfer(*, batch: Batch, lists: Lists) -> tuple[int, int, float | None, float, float | None]: ...
@operation()
def transfer_limited(
    *, batch: Batch, bucket: HashKey, limits: QueueLimits, lists: Lists
) -> tuple[int, int, float | None, float, float | None, int, bool, list[Any]]: ...
@operation()
def bury(*, keys: Stored, counts: Key, rows: Rows[tuple[bytes, bytes, str, Key]]) -> tuple[int, int, list[int]]: ...


class Delivery(StorePart):
    """Takes messages in and transfers due messages: for publishers, consumers and transfer workers."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        #: What is the same in many calls. It checks the names of queues, too.
        self._push_to = lru_cache(MOST_QUEUES)(self._push_of_none)
        self._empty_offer = lru_cache(MOST_QUEUES)(self._offer_of_none)
        options = client.options
        self._had_heads: frozenset[str] = frozenset()  # queues that had messages at the last look
        #: The store's own layout, and the other one, whose messages are drained as long as Redis allows it.
        self._layouts: Sequence[str] = sorted(LAYOUTS, key=lambda layout: layout != client.layout)
        self._may_be_limited = (options.overdue, options.transfer_rate) != ("run", None)

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Stores messages until they are due; one round trip, two if the queue held none.

        Args:
            queue: The queue to which the messages go then.
            offers: The messages. A few hundred at a time keep Redis responsive.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """
        reply = self._client.run_directly(self._empty_offer(queue, expire_ms), *chain.from_iterable(offers))
        self._registry.note(queue, reply.place)
        return reply

    def offer_once(self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0) -> list[Became]:
        """Stores messages unless messages of their ids or waiting keys wait in this queue, or in place of those.

        It takes one round trip. What waits and has expired is no matter: it goes.

        Args:
            queue: The queue to which the messages go.
            mode: ``keep`` or ``replace``, what happens to messages that wait.
            offers: The messages. One that waits already, as when a call is repeated, counts as ``added``.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Returns:
            What became of each.
        """
        return self._offer_once(queue, mode, offers, expire_ms, returning=False)[0]

    def offer_once_returning(
        self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0
    ) -> tuple[list[Became], set[tuple[int, bytes]]]:
        """Does what ``offer_once`` does, and returns priority and body of each message that went, too."""
        words, gone = self._offer_once(queue, mode, offers, expire_ms, returning=True)
        return words, {(int(one[:1]), one[1:]) for one in gone}

    def _offer_once(
        self, queue: str, mode: str, offers: Sequence[Offer], expire_ms: int, *, returning: bool
    ) -> tuple[list[Became], list[bytes]]:
        into, count = self._client.into(queue), MAX_DUPLICATES
        call = offer_once(into=into, expire=expire_ms, mode=mode, count=count, returning=returning, rows=offers)
        place, words, ids, gone = self._client.run(call)
        self._registry.note(queue, place)
        found: list[Any] = ["added" if word == "repeated" else word for word in words]
        return list(map(Became, found, ids)), gone

    def push(self, queue: str, offer: Offer, expire_ms: int = 0) -> None:
        """Pushes a message to its queue, as kombu does with one that is due at once; one round trip.

        Args:
            queue: The queue.
            offer: The message; its due time is not looked at.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Raises:
            InvalidQueueName: The name of the queue is kept for others.
        """
        command = self._push_to(queue, offer.priority)
        if expire_ms:
            ends = [("PEXPIRE", name, expire_ms) for name in self._client.ready(queue)]
            self._client.send([(*command, offer.body), *ends])
        else:
            self._client.ask_directly(command, offer.body)

    @contextmanager
    def offering(
        self, offered: Iterable[tuple[str, Sequence[Offer], int]], send: Callable[..., object]
    ) -> Iterator[None]:
        """Stores messages as ``offer`` does, by commands that the caller runs with others of its own in the block.

        Args:
            offered: Queue, messages and ``expire_ms`` of each call of ``offer``.
            send: Takes a command, before the block.
        """
        queues = set[str]()
        for queue, offers, expire_ms in offered:
            call = offer(into=self._client.into(queue), expire=expire_ms, rows=offers)
            send(*self._client.command(call, by_text=True))
            queues.add(queue)
        yield
        for queue in queues:
            self._registry.note(queue, None)

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages; one round trip, two if the queue held none. Repeating a page changes nothing.

        Args:
            queue: The queue to which the messages go when they are due; an empty due time is now.
            page: Id of the page. Its sender may not repeat earlier pages any more.
            offers: The messages. A few hundred at a time keep Redis responsive.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Returns:
            ``first``, ``head`` or ``behind``, as in ``Offered``; ``repeated`` for a page that Redis has already.
        """
        [place] = self._client.send([self._put_command(queue, page, offers, expire_ms)])
        if any(offer.due for offer in offers):
            self._registry.note(queue, place)
        return as_text(place)

    def put_ahead(
        self, ahead: SendAhead, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0
    ) -> Callable[[], None]:
        """Sends a page as ``put`` does, and returns before Redis has it.

        Args:
            ahead: What sends it, and has nothing on its way.
            queue: As of ``put``.
            page: As of ``put``.
            offers: As of ``put``.
            expire_ms: As of ``put``.

        Returns:
            What waits until Redis has the page, and raises its error.
        """
        ahead.send([self._put_command(queue, page, offers, expire_ms)])

        def confirm() -> None:
            replies = ahead.confirm()
            if replies and any(offer.due for offer in offers):
                self._registry.note(queue, replies[0])

        return confirm

    def _put_command(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int) -> Command:
        call = put(
            sender=self._keys.sender(page.sender, queue),
            into=self._client.into(queue),
            expire=expire_ms,
            number=page.number,
            ttl=PAGE_TTL_MS,
            lists=self._client.lists(queue),
            rows=offers,
        )
        return self._client.command(call, by_text=True)

    def adopt(self, queue: str, offer: Offer, tag: str, expire_ms: int = 0) -> str:
        """Moves a message that a consumer holds into the store.

        Args:
            queue: The queue from which the message came.
            offer: The message, with an absolute due time.
            tag: Delivery tag of the message; empty for a consumer that does not acknowledge, which holds no messages.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.

        Returns:
            ``first``, ``head`` or ``behind``, as in ``Offered``, if the store has the message now; ``due`` if it is due
            already by Redis's clock and stays with the consumer; ``gone`` if the consumer does not hold it any more.
        """
        into, held = self._client.into(queue), self._client.held(queue)
        return self._registry.run(queue, adopt(into=into, expire=expire_ms, held=held, tag=tag, offer=offer))

    def give_back(self, queue: str, priority: int, body: str) -> int:
        """Returns a message that a consumer could not keep to the list it came from, even in a full Redis.

        Returns the length of that list.
        """
        step = self._client.list_of_priority[priority]
        return self._client.run(give_back(ready=self._client.ready(queue)[step], body=body))

    def heads(self, queues: Sequence[str]) -> QueueHeads:
        """Reads when the next message of each queue is due, in either layout; at most two round trips.

        A queue that had no message at the last look costs one command, and no script, until it has one. But a queue of
        each node is always read by the script, for the clock of the node.

        A node that does not answer holds up no queue of the others: its queues are left out. If no node answers, that
        is an error.

        Rights for the store's own layout are enough. Once they are all that Redis gives, the other layout is no longer
        read.
        """
        try:
            return self._heads(queues, self._layouts)
        except NoPermissionError as error:
            own = [self._client.layout]
            found = self._heads(queues, own)
            self._layouts = own
            logger.info("delayed messages are looked for in the layout %r only: %s", *own, error)
            return found

    def dues(self, queues: Iterable[str]) -> dict[DelayedQueue, str]:
        """Returns the key with the due times of each queue, in each layout that ``heads`` reads."""
        return {DelayedQueue(queue, one): self._client.due(queue, one) for queue in queues for one in self._layouts}

    def listen(self) -> WakeListener:
        """Subscribes to the announcements of new heads."""
        return WakeListener(self._client.redis, self._keys)

    def transfer(self, queue: str, layout: str | None = None) -> Transferred:
        """Moves a batch of messages that are due to the lists from which kombu consumes.

        Args:
            queue: Name of the queue.
            layout: The layout in which the messages are kept, by default the store's own.
        """
        if self._may_be_limited and (limits := self._client.options.limits_of(queue)) is not None:
            return self.transfer_limited(queue, limits, layout)
        call = transfer(batch=self._batch(queue, layout), lists=self._client.lists(queue))
        return _transferred(*self._client.run(call.on(layout)))

    def transfer_limited(self, queue: str, limits: QueueLimits, layout: str | None = None) -> Transferred:
        """Moves a batch of messages that are due, as ``transfer`` does, within the limits of their queue.

        Args:
            queue: Name of the queue.
            limits: What becomes of messages that are too late, and how fast messages may leave.
            layout: The layout in which the messages are kept, by default the store's own.
        """
        bucket, lists = self._keys.bucket(queue), self._client.lists(queue)
        call = transfer_limited(bucket=bucket, batch=self._batch(queue, layout), limits=limits, lists=lists)
        moved, lost, first, now, again, dropped, held_back, rows = self._client.run(call.on(layout))
        too_late = tuple(
            TooLate(as_bytes(key), as_bytes(due), int(priority or 0), as_bytes(body) if priority else None)
            for key, due, priority, body in rows_of(rows)
        )
        done = _transferred(moved, lost, first, now, again)
        return done._replace(dropped=dropped, held_back=held_back, too_late=too_late)

    def bury(self, delayed: DelayedQueue, letters: Sequence[tuple[TooLate, str | bytes]], to: str) -> tuple[int, int]:
        """Moves messages that are too late to a queue of dead letters; five round trips.

        The two queues are in different slots. So the dead letters are pushed first, and the messages leave after that.
        Dead letters of messages that somebody else has moved meanwhile are taken back. If the caller
        dies in between, some messages become dead letters twice.

        Args:
            delayed: The queue in which they wait, and in which layout.
            letters: Messages, each with the dead letter that it becomes; empty for a message that is lost.
            to: Name of the queue of dead letters.

        Returns:
            Number of messages buried, and number of those that had no body and are gone. Those that somebody else has
            moved or changed meanwhile are left alone.
        """
        self._keys.check_queue(to)
        client, counts = self._client, self._keys.counts(delayed.queue)
        rows = [(message.key, message.due, digest(message.body or b""), letter) for message, letter in letters]
        client.ask("SADD", self._keys.dead_letters, to)
        lists = client.ready(to)
        places = [(lists[client.list_of_priority[message.priority]], letter) for message, letter in letters]
        client.send([("LPUSH", *place) for place in places if place[1]], once=True)
        call = bury(keys=client.stored(*delayed), counts=counts, rows=rows)
        buried, lost, untouched = client.run(call.on(delayed.layout))
        client.send([("LREM", places[at][0], 1, places[at][1]) for at in untouched if places[at][1]])
        if buried:
            with suppress(ResponseError):  # a Redis that refuses to count is no error
                client.ask(*client.count_dead(to, buried))
        return buried, lost

    def _heads(self, queues: Sequence[str], layouts: Sequence[str]) -> QueueHeads:
        dues = {queue: [self._client.due(queue, one) for one in layouts] for queue in queues}
        read = {*self._client.one_a_node({queue: keys[0] for queue, keys in dues.items()}), *self._had_heads}
        empty = [queue for queue in dues if queue not in read]
        found = self._client.replies([("EXISTS", *dues[queue]) for queue in empty]) if empty else []
        errors = [reply for reply in found if isinstance(reply, Exception)]
        there = [queue for queue, reply in zip(empty, found, strict=True) if not isinstance(reply, Exception) and reply]
        asked = [queue for queue in dues if queue in read or queue in there]
        replies, _ = self._client.run_each([heads(dues=dues[queue]) for queue in asked])
        errors += [reply for reply in replies if isinstance(reply, Exception)]
        refused = [error for error in errors if isinstance(error, ResponseError)]
        if refused:
            raise refused[0]
        now_ms, due_ms = 0.0, dict[DelayedQueue, float]()
        for queue, reply in zip(asked, replies, strict=True):
            if not isinstance(reply, Exception):
                now_ms = max(now_ms, reply[0])
                found_in = zip(layouts, reply[1:], strict=True)
                due_ms |= {DelayedQueue(queue, one): due for one, due in found_in if due is not None}
        if not now_ms:
            now_ms = time_ms(self._client.redis.time())
        self._had_heads = self._had_heads.difference(queues).union(delayed.queue for delayed in due_ms)
        return QueueHeads(now_ms, due_ms)

    def _batch(self, queue: str, layout: str | None) -> Batch:
        """Returns what a transfer gets of a queue: its keys, how much it moves at most, and where it counts that."""
        options, kept = self._client.options, LAYOUT_OF[layout or self._client.layout]
        count, size = options.transfer_batch // kept.batch_share, options.transfer_batch_bytes // kept.bytes_share
        keys, counts = self._client.stored(queue, layout), self._keys.counts(queue)
        return Batch(keys, max(count, 1), max(size, 1), counts)

    def _push_of_none(self, queue: str, priority: int) -> Command:
        """Returns the command of ``push`` without its message."""
        self._keys.check_queue(queue)
        return "LPUSH", self._client.ready(queue)[self._client.list_of_priority[priority]]

    def _offer_of_none(self, queue: str, expire_ms: int) -> Call[Offered]:
        """Returns the call of ``offer`` without its messages."""
        return offer(into=self._client.into(queue), expire=expire_ms, rows=())


def _transferred(moved: int, lost: int, first: float | None, now: float, head: float | None) -> Transferred:
    return Transferred(moved, lost, 0.0 if first is None else now - first, now, head)
