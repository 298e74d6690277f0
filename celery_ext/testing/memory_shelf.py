"""The messages that wait in memory, of all queues, in the order of their due times."""

import threading
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha1
from itertools import count
from typing import Literal

from kombu_delayq.message import key_of, unsigned
from kombu_delayq.store import Offer, Waiting
from kombu_delayq.text import as_bytes, as_text

#: What became of an offered message.
State = Literal["offered", "repeated", "renamed"]


@dataclass(frozen=True)
class Kept:
    """A message that waits.

    Attributes:
        order: Number among all messages, in the order of publishing.
        own_id: The id with which it was offered.
        message: The message as the store shows it.
    """

    order: int
    own_id: str
    message: Waiting

    @property
    def place(self) -> tuple[float, int]:
        """Its place among the messages of its queue."""
        return self.message.due_ms, self.order


class Shelf:
    """Keeps the messages of all queues in the order of their due times.

    Args:
        now_ms: The clock, ms since the epoch.
        push: Pushes a message to its queue.

    Attributes:
        queues: Names of the queues that hold or held messages.
        refused: Ids whose delay chains take no step.
        chains: Ids of delay chains that are known.
        lock: A caller that reads and then changes messages holds it.
        changes: How often a message was added, moved or removed.
    """

    def __init__(self, now_ms: Callable[[], float], push: Callable[[Waiting], None]) -> None:
        self.now_ms, self.push = now_ms, push
        self.queues: set[str] = set()
        self.refused: set[str] = set()
        self.chains: set[str] = set()
        self.lock = threading.RLock()
        self.changes = 0
        self._kept: defaultdict[str, list[Kept]] = defaultdict(list)
        self._orders = count()

    def of(self, queue: str) -> list[Kept]:
        """Returns the messages of a queue, the next due first."""
        with self.lock:
            return list(self._kept.get(queue, ()))

    def head_ms(self, queue: str) -> float | None:
        """Returns when the next message of a queue is due, or None."""
        found = self._kept.get(queue)
        return found[0].message.due_ms if found else None

    def put(self, queue: str, offer: Offer, due_ms: float) -> State:
        """Adds a message, unless it is there already."""
        own_id, body = as_text(offer.id), as_bytes(offer.body)
        content = f"{offer.priority}".encode() + unsigned(body)
        duplicate_id = f"{own_id}~{sha1(content, usedforsecurity=False).hexdigest()[:16]}"
        with self.lock:
            self.queues.add(queue)
            stored = {kept.message.id: kept.message for kept in self._kept[queue]}
            first = stored.get(own_id)
            is_first = first and f"{first.priority}".encode() + unsigned(as_bytes(first.body or b"")) == content
            if duplicate_id in stored or is_first:
                return "repeated"
            stored_id = own_id if first is None else duplicate_id
            self.changes += 1
            message = Waiting(queue, stored_id, due_ms, offer.priority, body)
            insort(self._kept[queue], Kept(next(self._orders), own_id, message), key=lambda kept: kept.place)
            return "offered" if first is None else "renamed"

    def move(self, kept: Kept, due_ms: float, body: bytes) -> None:
        """Gives a message another due time and body; it comes behind those of the same due time."""
        with self.lock:
            self.remove(kept)
            message = kept.message._replace(due_ms=due_ms, body=body)
            moved = Kept(next(self._orders), kept.own_id, message)
            insort(self._kept[message.queue], moved, key=lambda one: one.place)

    def remove(self, kept: Kept) -> None:
        """Removes a message that waits."""
        with self.lock:
            self._kept[kept.message.queue].remove(kept)
            self.changes += 1

    def find(self, queues: Iterable[str], identity: str) -> Iterator[Kept]:
        """Yields the messages of an id or a waiting key, or the one that is stored under it."""
        for queue in queues:
            yield from (
                kept for kept in self.of(queue) if identity in (kept.message.id, kept.own_id, key_of(kept.own_id))
            )

    def stored(self, queue: str, stored_id: str) -> Kept | None:
        """Returns the message that is stored under an id, or None."""
        return next((kept for kept in self.of(queue) if kept.message.id == stored_id), None)

    def clear(self, queue: str) -> int:
        """Removes all messages of a queue, and forgets it. Returns how many there were."""
        with self.lock:
            self.queues.discard(queue)
            self.changes += 1
            return len(self._kept.pop(queue, ()))
