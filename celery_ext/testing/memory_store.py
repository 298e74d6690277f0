"""A store in memory, with the operations of ``DelayStore`` that an app, its channels and its tasks use."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from celery_ext.features import modules_of
from celery_ext.testing.memory_shelf import Kept, Shelf
from kombu_delayq.message import Became, headers_of, is_doomed, key_of, read, unsigned
from kombu_delayq.options import Options
from kombu_delayq.store import (
    CancelledChains,
    Change,
    Cursor,
    DelayedQueue,
    Offer,
    Offered,
    Page,
    PageId,
    Part,
    Scanned,
    Transferred,
    Waiting,
    is_step,
)
from kombu_delayq.text import as_bytes, as_text

T = TypeVar("T")

#: Digits of a message's number, at the beginning of what a page knows it by.
_ORDER_DIGITS = 12

#: The layout that this store shows.
LAYOUT = "hash"


class MemoryLookup:
    """The counterpart of ``kombu_delayq.store.lookup.Lookup``.

    Args:
        shelf: The messages.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def get(self, queues: Sequence[str], ids: Sequence[str]) -> dict[str, list[Waiting]]:
        """Reads the waiting messages of some ids, as ``Lookup.get``."""
        found: dict[str, list[Waiting]] = {}
        for identity in ids:
            messages = [kept.message for kept in self._shelf.find(queues, identity)]
            if messages:
                found.setdefault(identity, []).extend(messages)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found

    def cancel_at_once(self, ids: Sequence[str], found: dict[str, list[Waiting]]) -> set[str]:
        """Removes nothing and leaves all to ``cancel``, as ``Lookup.cancel_at_once`` does where that is not enough."""
        return {*ids}

    def cancel(
        self,
        queues: Sequence[str],
        ids: Sequence[str],
        found: dict[str, list[Waiting]] | None = None,
    ) -> dict[str, list[Waiting]]:
        """Removes the waiting messages of some ids, as ``Lookup.cancel``."""
        found = {} if found is None else found
        with self._shelf.lock:
            for identity in ids:
                removed = list(self._shelf.find(queues, identity))
                for kept in removed:
                    self._shelf.remove(kept)
                    found.setdefault(identity, []).append(kept.message)
                if removed:
                    has_step = any(is_step(kept.message) for kept in removed)
                    (self._shelf.chains if has_step else self._shelf.refused).discard(identity)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due, as ``Lookup.reschedule``."""

        def move(kept: Kept, change: Change) -> str:
            if change.due_ms <= self._shelf.now_ms():
                return "due"
            self._shelf.move(kept, change.due_ms, change.body)
            return "rescheduled"

        return [self._change(queue, change.message, move, change) for change in changes]

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue before they are due, as ``Lookup.run_now``."""

        def push(kept: Kept, change: Change) -> str:
            self._shelf.remove(kept)
            self._shelf.push(kept.message._replace(body=change.body))
            return "transferred"

        return [self._change(queue, change.message, push, change) for change in changes]

    def discard(self, queue: str, messages: Sequence[tuple[Waiting, str]]) -> list[str]:
        """Removes messages of one queue that are still as they were read, as ``Lookup.discard``."""

        def remove(kept: Kept, chain: str) -> str:
            self._shelf.remove(kept)
            if chain:
                ended.add(chain)
            return "cancelled"

        ended = set[str]()
        words = [self._change(queue, message, remove, chain) for message, chain in messages]
        with self._shelf.lock:
            self._shelf.refused |= ended
            self._shelf.chains -= ended
            for kept in [kept for chain in ended for kept in self._shelf.find([queue], chain)]:
                if is_step(kept.message):  # a copy of the step that went
                    self._shelf.remove(kept)
        return words

    def _change(self, queue: str, read: Waiting, change: Callable[[Kept, T], str], wanted: T) -> str:
        with self._shelf.lock:
            kept = self._shelf.stored(queue, as_text(read.id))
            if kept is None:
                return "not_delayed"
            if (kept.message.body, kept.message.due_ms) != (read.body or b"", read.due_ms):
                return "changed"
            return change(kept, wanted)


class MemoryScan:
    """The counterpart of those operations of ``kombu_delayq.store.scan.Scan`` that show messages.

    Those that share a queue among the readers of a Spark job have none here.

    Args:
        shelf: The messages.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def browse(
        self, queue: str, after: Page | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 100
    ) -> Page:
        """Reads a page of the waiting messages of a queue, as ``Scan.browse``."""
        ends = dict(after.ends) if after is not None else {}
        left = self._behind(queue, ends.get(LAYOUT), from_ms, to_ms)
        read = left[:count]
        places = tuple((LAYOUT, (_member(kept), as_bytes(repr(kept.message.due_ms)))) for kept in read)
        return Page([kept.message for kept in read], len(read) < len(left), ends | dict(places), places)

    def scan(
        self, part: Part, after: Scanned | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 500
    ) -> Scanned:
        """Reads a page of the messages of a queue, without bodies, as ``Scan.scan``. A queue is one part here."""
        left = self._behind(part.queue, after.last if after is not None else None, from_ms, to_ms)
        read = left[:count]
        return Scanned(
            [_member(kept) for kept in read],
            [as_bytes(repr(kept.message.due_ms)) for kept in read],
            [len(kept.message.body or b"") for kept in read],
            len(read) < len(left),
        )

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids under which messages are stored, as ``Scan.ids``."""
        return [member[_ORDER_DIGITS:] for member in members]

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return len(self._behind(queue, None, from_ms, to_ms))

    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[DelayedQueue, int]:
        """Counts messages as ``count`` does, by queue."""
        return {DelayedQueue(queue, LAYOUT): self.count(queue, from_ms, to_ms) for queue in queues}

    def _behind(self, queue: str, end: Cursor | None, from_ms: float, to_ms: float) -> list[Kept]:
        """Returns the messages that are due from ``from_ms`` on and before ``to_ms``, behind the end of a page."""
        messages = self._shelf.of(queue)
        first, last = (
            bisect_left(messages, bound_ms, key=attrgetter("message.due_ms")) for bound_ms in (from_ms, to_ms)
        )
        if end is not None:
            place = float(end[1]), int(end[0][:_ORDER_DIGITS])
            first = max(first, bisect_right(messages, place, key=attrgetter("place")))
        return messages[first:last]


def _member(kept: Kept) -> bytes:
    """Returns by what a page knows a message."""
    return b"%0*d" % (_ORDER_DIGITS, kept.order) + as_bytes(kept.message.id)


class MemoryDelivery:
    """The counterpart of ``kombu_delayq.store.delivery.Delivery``: takes messages in, and transfers those that are due.

    Args:
        shelf: The messages.
        options: Returns the transport options.
    """

    def __init__(self, shelf: Shelf, options: Callable[[], Options]) -> None:
        self._shelf, self._options = shelf, options
        self._pages: dict[str, int] = {}

    def offer(self, queue: str, *offers: Offer, expire_ms: int = 0) -> Offered:
        """Keeps messages until they are due, as ``Delivery.offer``. Queues do not expire here."""
        with self._shelf.lock:
            before = self._shelf.head_ms(queue)
            states = [self._shelf.put(queue, offer, self._due_ms(offer)) for offer in offers]
            after = self._shelf.head_ms(queue)
        is_head = after is not None and (before is None or after < before)
        place = "behind" if not is_head else "first" if before is None else "head"
        return Offered(place, *(states.count(state) for state in ("offered", "repeated", "renamed")))

    def offer_once(self, queue: str, mode: str, *offers: Offer, expire_ms: int = 0) -> list[Became]:
        """Keeps messages unless messages of their ids or keys wait, or in place of those, as ``offer_once``."""
        with self._shelf.lock:
            return [self._offer_once(queue, mode, offer) for offer in offers]

    def _offer_once(self, queue: str, mode: str, offer: Offer) -> Became:
        content, own_id = unsigned(as_bytes(offer.body)), as_text(offer.id)
        waiting = list(self._shelf.find([queue], key_of(own_id)))
        if any(unsigned(as_bytes(kept.message.body or b"")) == content for kept in waiting):
            return Became("added", own_id)
        now_ms = self._shelf.now_ms()
        alive = [one for one in waiting if not is_doomed(one.message.body or b"", one.message.due_ms, now_ms)]
        if alive and mode == "keep":
            return Became("kept", alive[0].own_id)
        for kept in waiting:
            self._shelf.remove(kept)
        self.offer(queue, offer)
        return Became("replaced" if alive else "added", own_id)

    def push(self, queue: str, offer: Offer, expire_ms: int = 0) -> None:
        """Pushes a message to its queue; its due time is not looked at."""
        self._shelf.push(Waiting(queue, as_text(offer.id), 0.0, offer.priority, as_bytes(offer.body)))

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages, as ``Delivery.put``."""
        with self._shelf.lock:
            if any(offer.due for offer in offers):
                self._shelf.queues.add(queue)
            if self._pages.get(page.sender, 0) >= page.number:
                return "repeated"
            self._pages[page.sender] = page.number
            delayed = [offer for offer in offers if offer.due and self._due_ms(offer) > self._shelf.now_ms()]
            for offer in offers:
                if offer not in delayed:
                    self.push(queue, offer)
            return self.offer(queue, *delayed).place if delayed else "behind"

    def transfer(self, queue: str, layout: str | None = None) -> Transferred:
        """Moves a batch of messages that are due to their queue, as ``Delivery.transfer``, without limits."""
        now_ms = self._shelf.now_ms()
        with self._shelf.lock:
            due = [kept for kept in self._shelf.of(queue) if kept.message.due_ms <= now_ms][
                : self._options().transfer_batch
            ]
            for kept in due:
                self._shelf.remove(kept)
                self._shelf.push(kept.message)
            late_ms = now_ms - due[0].message.due_ms if due else 0.0
            return Transferred(len(due), 0, late_ms, now_ms, self._shelf.head_ms(queue))

    def _due_ms(self, offer: Offer) -> float:
        return float(offer.due) + (self._shelf.now_ms() if offer.due.startswith("+") else 0.0)


class MemoryQueues:
    """The counterpart of those operations of ``kombu_delayq.store.queues.Queues`` that need no server.

    Args:
        shelf: The messages.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._of_letters = set[str]()

    def names(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages."""
        return sorted(self._shelf.queues)

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue."""
        return len(self._shelf.of(queue))

    def purge(self, queue: str, *, with_ready: bool = False) -> int:
        """Removes all delayed messages of a queue. Returns how many. What is ready is in no store here."""
        return self._shelf.clear(queue)

    def delete(self, queue: str) -> int:
        """Removes a queue's delayed messages, as ``purge``."""
        return self.purge(queue)

    def of_letters(self) -> list[str]:
        """Returns the names of the queues into which dead letters were put."""
        return sorted(self._of_letters)

    def note_dead_letters(self, queue: str, count: int = 1) -> None:
        """Notes that a queue gets dead letters, so that they are found."""
        self._of_letters.add(queue)


class MemoryChains:
    """The counterpart of ``kombu_delayq.store.chains.DelayChains``. Notes of cancelled chains stay as long as it does.

    Args:
        shelf: The messages.
        delivery: Takes in the steps.
    """

    def __init__(self, shelf: Shelf, delivery: MemoryDelivery) -> None:
        self._shelf, self._delivery = shelf, delivery

    def step(self, queue: str, chain: str, offer: Offer, expire_ms: int = 0, *, stores: bool = True) -> str:
        """Stores the next step of a delay chain, as ``DelayChains.step``; there is no other place to store it."""
        identity = as_text(offer.id)
        with self._shelf.lock:
            goes_on, number = self.check_chain(offer), _position(as_bytes(offer.body))
            bodies = {kept: kept.message.body or b"" for kept in self._shelf.find([queue], identity)}
            steps = {kept: _position(body) for kept, body in bodies.items() if as_bytes(chain) in body}
            later = {kept for kept, at in steps.items() if goes_on and at >= number}
            for kept in steps.keys() - later:
                self._shelf.remove(kept)
            if later or not goes_on:
                return "waits" if later else "cancelled"
            self._shelf.queues.add(queue)
            return self._delivery.offer(queue, offer).place

    def check_chain(self, offer: Offer) -> bool:
        """Asks whether a chain may take this step, and notes the chain; False if the chain was cancelled."""
        identity = as_text(offer.id)
        if identity in self._shelf.refused:
            self._shelf.chains.discard(identity)
            return False
        self._shelf.chains.add(identity)
        return True

    def cancel_chains(self, ids: Sequence[str], *, in_use: bool = False) -> CancelledChains:
        """Notes ids whose delay chains must take no further step, as ``DelayChains.cancel_chains``."""
        with self._shelf.lock:
            self._shelf.refused.update(ids)
            return CancelledChains(
                sorted(self._shelf.queues), {identity for identity in ids if identity in self._shelf.chains}
            )

    def accept(self, ids: Sequence[str]) -> int:
        """Undoes ``cancel_chains``. Returns how many of the ids were noted."""
        noted = self._shelf.refused.intersection(ids)
        self._shelf.refused.difference_update(noted)
        return len(noted)

    def use_chains(self) -> None:
        """Does nothing: notes of cancelled chains are kept in any case."""


class MemoryStore:
    """Keeps messages in memory until they are due, with the parts of ``DelayStore`` that make sense without a server.

    What is missing serves operators and other processes: leases, consumers, repair, bulk jobs of Spark, figures.
    Nothing expires, and nobody transfers by himself.

    Args:
        options: Transport options; they may change.
        now_ms: The clock, ms since the epoch.
        push: Pushes a message to its queue.
        ready: Reads the messages of a queue that wait for a consumer, the oldest first.
        take: Takes one of them out; False if it is not there.
    """

    layout = LAYOUT

    def __init__(
        self,
        options: Options,
        now_ms: Callable[[], float],
        push: Callable[[Waiting], None],
        ready: Callable[[str], Sequence[bytes]] = lambda queue: (),
        take: Callable[[str, bytes], bool] = lambda queue, message: False,
    ) -> None:
        self._shelf = shelf = Shelf(now_ms, push)
        self.options, self.now_ms = options, now_ms

        def given() -> Options:
            return self.options

        self.delivery = MemoryDelivery(shelf, given)
        self.queues = MemoryQueues(shelf)
        self.chains = MemoryChains(shelf, self.delivery)
        self.lookup = MemoryLookup(shelf)
        self.scan = MemoryScan(shelf)
        self.push, self.ready, self.take = push, ready, take

    def part(self, kind: type) -> Any:
        """Returns the counterpart of the part of a feature, which it brings in its module ``in_memory``.

        See ``Store.part``.
        """
        [make] = (module.PARTS[kind] for module in modules_of("in_memory", but="testing") if kind in module.PARTS)
        return make(self)

    @property
    def changes(self) -> int:
        """How often a message was added, moved or removed so far."""
        return self._shelf.changes

    def if_allowed(self, look: Callable[[], T]) -> T:
        """Returns what a function finds: nothing is forbidden here."""
        return look()

    def check_version(self) -> None:
        """Does nothing: there is no server."""

    def close(self) -> None:
        """Does nothing: there are no connections."""


def _position(body: bytes) -> float:
    """Returns the number of a message's step in its chain; 0 for a message that has none."""
    found: Any = headers_of(read(body)).get("retries")
    return found if isinstance(found, int | float) and found < inf else 0
