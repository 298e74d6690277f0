"""The store's operations on the way of a message: offered, kept until it is due, transferred to its queue."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain
from typing import Any

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.message.once import Became
from kombu_delayq.options import LAYOUTS, QueueLimits
from kombu_delayq.redis.commands import SendAhead
from kombu_delayq.redis.replies import Command, time_ms
from kombu_delayq.store.client import MOST_QUEUES, ScriptCall, StoreClient
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


class Delivery(StorePart):
    """Takes messages in and transfers due messages: for publishers, consumers and transfer workers."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._ready = lru_cache(MOST_QUEUES)(client.ready)
        self._address = lru_cache(MOST_QUEUES)(self._address_of)
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
        reply = self._client.run_directly("offer", *self._offer_start(queue, expire_ms), *chain.from_iterable(offers))
        self._registry.note(queue, reply[0])
        return Offered(as_text(reply[0]), *reply[1:])

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
        return words, {(int(one[:1]), one[1:]) for one in map(as_bytes, gone)}

    def _offer_once(
        self, queue: str, mode: str, offers: Sequence[Offer], expire_ms: int, *, returning: bool
    ) -> tuple[list[Became], list[bytes]]:
        keys, args = self._offer_start(queue, expire_ms)
        rows = chain.from_iterable(offers)
        reply = self._client.run("offer_once", keys, [*args, mode, MAX_DUPLICATES, int(returning), *rows])
        place, words, ids, gone = reply
        self._registry.note(queue, place)
        found: list[Any] = ["added" if (word := as_text(one)) == "repeated" else word for one in words]
        return list(map(Became, found, map(as_text, ids))), gone

    def push(self, queue: str, offer: Offer, expire_ms: int = 0) -> None:
        """Pushes a message to its queue, as kombu does with one that is due at once; one round trip.

        Args:
            queue: The queue.
            offer: The message; its due time is not looked at.
            expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        """
        lists = self._ready(queue)
        command = ("LPUSH", lists[self._client.list_of_priority[offer.priority]])
        if expire_ms:
            self._client.send([(*command, offer.body), *(("PEXPIRE", name, expire_ms) for name in lists)])
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
            keys, args = self._offer_start(queue, expire_ms)
            send(*self._client.eval_command("offer", keys, [*args, *chain.from_iterable(offers)]))
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
        client = self._client
        self._keys.check_queue(queue)
        keys = [self._keys.sender(page.sender, queue), *client.stored(queue), *client.ready(queue)]
        args = [client.wake(queue), queue, expire_ms, page.number, PAGE_TTL_MS, *client.list_of_priority]
        return client.eval_command("put", keys, [*args, *chain.from_iterable(offers)])

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
        args = [self._client.wake(queue), queue, expire_ms, tag, *offer]
        keys = [*self._client.stored(queue), self._keys.unacked_index(queue), self._keys.unacked(queue)]
        return as_text(self._registry.run("adopt", queue, keys, args))

    def give_back(self, queue: str, priority: int, body: str) -> int:
        """Returns a message that a consumer could not keep to the list it came from, even in a full Redis.

        Returns the length of that list.
        """
        step = self._client.list_of_priority[priority]
        return int(self._client.run("give_back", [self._client.ready(queue)[step]], [body]))

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
        keys = [*self._client.stored(queue, layout), *self._client.ready(queue)]
        args = [*self._batch(queue, layout), *self._client.list_of_priority]
        return _transferred(*self._client.run("transfer", keys, args, layout))

    def transfer_limited(self, queue: str, limits: QueueLimits, layout: str | None = None) -> Transferred:
        """Moves a batch of messages that are due, as ``transfer`` does, within the limits of their queue.

        Args:
            queue: Name of the queue.
            limits: What becomes of messages that are too late, and how fast messages may leave.
            layout: The layout in which the messages are kept, by default the store's own.
        """
        client, layout = self._client, layout or self._client.layout
        keys = [*client.stored(queue, layout), self._keys.bucket(queue), *client.ready(queue)]
        args = [*self._batch(queue, layout), *("" if limit is None else limit for limit in limits)]
        *usual, dropped, held_back, rows = client.run(
            "transfer_limited", keys, [*args, *client.list_of_priority], layout
        )
        too_late = tuple(
            TooLate(as_bytes(key), as_bytes(due), int(priority or 0), as_bytes(body) if priority else None)
            for key, due, priority, body in rows_of(rows)
        )
        return _transferred(*usual)._replace(dropped=dropped, held_back=bool(held_back), too_late=too_late)

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
        client, args = self._client, list[Any]([self._keys.counts(delayed.queue)])
        for message, letter in letters:
            args += [message.key, message.due, digest(message.body or b""), letter]
        client.ask("SADD", self._keys.dead_letters, to)
        lists = client.ready(to)
        places = [(lists[client.list_of_priority[message.priority]], letter) for message, letter in letters]
        client.send([("LPUSH", *place) for place in places if place[1]], once=True)
        buried, lost, untouched = client.run("bury", client.stored(*delayed), args, delayed.layout)
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
        calls: list[ScriptCall] = [(dues[queue], [], "hash") for queue in asked]
        replies, _ = self._client.run_each("heads", calls)
        errors += [reply for reply in replies if isinstance(reply, Exception)]
        refused = [error for error in errors if isinstance(error, ResponseError)]
        if refused:
            raise refused[0]
        now_ms, due_ms = 0.0, dict[DelayedQueue, float]()
        for queue, reply in zip(asked, replies, strict=True):
            if not isinstance(reply, Exception):
                now_ms = max(now_ms, float(reply[0]))
                due_ms |= {
                    DelayedQueue(queue, one): float(due) for one, due in zip(layouts, reply[1:], strict=True) if due
                }
        if not now_ms:
            now_ms = time_ms(self._client.redis.time())
        self._had_heads = self._had_heads.difference(queues).union(delayed.queue for delayed in due_ms)
        return QueueHeads(now_ms, due_ms)

    def _batch(self, queue: str, layout: str | None) -> list[Any]:
        """Returns the first arguments of a transfer: how much it moves at most, and the key of the counters."""
        options, kept = self._client.options, LAYOUT_OF[layout or self._client.layout]
        most = options.transfer_batch // kept.batch_share, options.transfer_batch_bytes // kept.bytes_share
        return [*(max(number, 1) for number in most), self._keys.counts(queue)]

    def _offer_start(self, queue: str, expire_ms: int) -> tuple[list[Any], list[Any]]:
        """Returns KEYS of the script ``offer``, and those of ARGV that are the same for all messages of a queue."""
        keys, announced = self._address(queue)
        return keys, [*announced, expire_ms]

    def _address_of(self, queue: str) -> tuple[list[Any], list[Any]]:
        """Returns the keys of a queue, and where and how its new heads are announced, as Redis gets them."""
        client = self._client
        self._keys.check_queue(queue)
        return list(map(as_bytes, client.stored(queue))), list(map(as_bytes, (client.wake(queue), queue)))


def _transferred(moved: int, lost: int, first: Any, now: Any, head: Any) -> Transferred:
    now_ms = float(now)
    return Transferred(moved, lost, now_ms - float(first) if first else 0.0, now_ms, float(head) if head else None)
