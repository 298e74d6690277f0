"""A store in memory, with the operations of ``DelayStore`` that an app, its channels and its tasks use."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from celery_ext.testing.memory_lookup import LAYOUT, MemoryLookup, MemoryScan
from celery_ext.testing.memory_shelf import Shelf
from kombu_delayq.message.fields import headers_of, read
from kombu_delayq.options import Options
from kombu_delayq.redis.replies import as_bytes, as_text
from kombu_delayq.store.chains import CancelledChains
from kombu_delayq.store.queues import QueueStats
from kombu_delayq.store.types import Offer, Offered, PageId, Placed, Transferred, Waiting


class MemoryDelivery:
    """The counterpart of ``kombu_delayq.store.delivery.Delivery``: takes messages in, and transfers those that are due.

    Args:
        shelf: The messages.
        options: Returns the transport options.
        now_ms: The clock, ms since the epoch.
        push: Pushes a message to its queue.
    """

    def __init__(
        self, shelf: Shelf, options: Callable[[], Options], now_ms: Callable[[], float], push: Callable[[Waiting], None]
    ) -> None:
        self._shelf, self._options, self._now_ms, self._push = shelf, options, now_ms, push
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

    def push(self, queue: str, offer: Offer, expire_ms: int = 0) -> None:
        """Pushes a message to its queue; its due time is not looked at."""
        self._push(Waiting(queue, as_text(offer.id), 0.0, offer.priority, as_bytes(offer.body)))

    def put(self, queue: str, page: PageId, offers: Sequence[Offer], expire_ms: int = 0) -> str:
        """Publishes a page of messages, as ``Delivery.put``."""
        with self._shelf.lock:
            if any(offer.due for offer in offers):
                self._shelf.queues.add(queue)
            if self._pages.get(page.sender, 0) >= page.number:
                return "repeated"
            self._pages[page.sender] = page.number
            delayed = [offer for offer in offers if offer.due and self._due_ms(offer) > self._now_ms()]
            for offer in offers:
                if offer not in delayed:
                    self.push(queue, offer)
            return self.offer(queue, *delayed).place if delayed else "behind"

    def place(self, queue: str, offers: Sequence[Offer], expire_ms: int = 0, page: PageId | None = None) -> Placed:
        """Returns all messages: there is no journal beside this store."""
        return Placed(offers)

    def transfer(self, queue: str, layout: str | None = None) -> Transferred:
        """Moves a batch of messages that are due to their queue, as ``Delivery.transfer``, without limits."""
        now_ms = self._now_ms()
        with self._shelf.lock:
            due = [kept for kept in self._shelf.of(queue) if kept.due_ms <= now_ms][: self._options().transfer_batch]
            for kept in due:
                self._shelf.remove(kept)
                self._push(kept.message)
            late_ms = now_ms - due[0].due_ms if due else 0.0
            return Transferred(len(due), 0, late_ms, now_ms, self._shelf.head_ms(queue))

    def _due_ms(self, offer: Offer) -> float:
        return float(offer.due) + (self._now_ms() if offer.due.startswith("+") else 0.0)


class MemoryQueues:
    """The counterpart of those operations of ``kombu_delayq.store.queues.Queues`` that need no server.

    Args:
        shelf: The messages.
        options: Returns the transport options.
        now_ms: The clock, ms since the epoch.
        ready: Counts the messages of a queue that wait for a consumer.
    """

    def __init__(
        self, shelf: Shelf, options: Callable[[], Options], now_ms: Callable[[], float], ready: Callable[[str], int]
    ) -> None:
        self._shelf, self._options, self._now_ms, self._ready = shelf, options, now_ms, ready

    def names(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages."""
        return sorted(self._shelf.queues)

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue."""
        return len(self._shelf.of(queue))

    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages."""
        kept, now_ms = self._shelf.of(queue), self._now_ms()
        overdue = sum(one.due_ms <= now_ms for one in kept)
        return QueueStats(queue, now_ms, len(kept), self._ready(queue), overdue, kept[0].due_ms if kept else None)

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue. Returns how many."""
        return self._shelf.clear(queue)

    def delete(self, queue: str) -> int:
        """Removes a queue's delayed messages, as ``purge``."""
        return self.purge(queue)

    def note_dead_letters(self, queue: str) -> None:
        """Does nothing: nobody shows the dead letters of a test."""


class MemoryChains:
    """The counterpart of ``kombu_delayq.store.chains.DelayChains``. Notes of cancelled chains stay as long as it does.

    Args:
        shelf: The messages.
        delivery: Takes in the steps.
        refused: Ids whose delay chains take no step.
        chains: Ids of delay chains that are known.
    """

    def __init__(self, shelf: Shelf, delivery: MemoryDelivery, refused: set[str], chains: set[str]) -> None:
        self._shelf, self._delivery, self._refused, self._chains = shelf, delivery, refused, chains

    def step(self, queue: str, chain: str, offer: Offer, expire_ms: int = 0, *, stores: bool = True) -> str:
        """Stores the next step of a delay chain, as ``DelayChains.step``; there is no other place to store it."""
        identity = as_text(offer.id)
        with self._shelf.lock:
            if not self.check_chain(offer):
                return "cancelled"
            self._shelf.queues.add(queue)
            for kept in list(self._shelf.find([queue], identity)):
                body = kept.message.body or b""
                if as_bytes(chain) in body:
                    if _position(body) >= _position(as_bytes(offer.body)):
                        return "waits"
                    self._shelf.remove(kept)
            return self._delivery.offer(queue, offer).place

    def check_chain(self, offer: Offer) -> bool:
        """Asks whether a chain may take this step, and notes the chain; False if the chain was cancelled."""
        identity = as_text(offer.id)
        if identity in self._refused:
            self._chains.discard(identity)
            return False
        self._chains.add(identity)
        return True

    def cancel_chains(self, ids: Sequence[str], *, in_use: bool = False) -> CancelledChains:
        """Notes ids whose delay chains must take no further step, as ``DelayChains.cancel_chains``."""
        with self._shelf.lock:
            self._refused.update(ids)
            return CancelledChains(
                sorted(self._shelf.queues), {identity for identity in ids if identity in self._chains}
            )

    def accept(self, ids: Sequence[str]) -> int:
        """Undoes ``cancel_chains``. Returns how many of the ids were noted."""
        noted = self._refused.intersection(ids)
        self._refused.difference_update(noted)
        return len(noted)

    def use_chains(self) -> None:
        """Does nothing: notes of cancelled chains are kept in any case."""


class MemoryStore:
    """Keeps messages in memory until they are due, with the parts of ``DelayStore`` that make sense without a server.

    What is missing serves operators and other processes: leases, consumers, repair, bulk jobs of Spark, dead letters,
    figures. Nothing expires, and nobody transfers by himself.

    Args:
        options: Transport options; they may change.
        now_ms: The clock, ms since the epoch.
        push: Pushes a message to its queue.
        ready: Counts the messages of a queue that wait for a consumer.
    """

    layout = LAYOUT
    database_errors: tuple[type[Exception], ...] = ()

    def __init__(
        self,
        options: Options,
        now_ms: Callable[[], float],
        push: Callable[[Waiting], None],
        ready: Callable[[str], int] = lambda queue: 0,
    ) -> None:
        self._shelf = shelf = Shelf()
        refused, chains = set[str](), set[str]()
        self.options, self.now_ms = options, now_ms

        def given() -> Options:
            return self.options

        self.delivery = MemoryDelivery(shelf, given, now_ms, push)
        self.queues = MemoryQueues(shelf, given, now_ms, ready)
        self.chains = MemoryChains(shelf, self.delivery, refused, chains)
        self.lookup = MemoryLookup(shelf, refused, chains, now_ms, push)
        self.scan = MemoryScan(shelf)

    @property
    def changes(self) -> int:
        """How often a message was added, moved or removed so far."""
        return self._shelf.changes

    def check_version(self) -> None:
        """Does nothing: there is no server."""

    def close(self) -> None:
        """Does nothing: there are no connections."""


def _position(body: bytes) -> float:
    """Returns the number of a message's step in its chain; 0 for a message that has none."""
    found: Any = headers_of(read(body)).get("retries")
    return found if isinstance(found, int | float) and found < inf else 0
