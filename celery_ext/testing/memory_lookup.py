"""The counterpart of the store's operations that find, change and read waiting messages."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from math import inf
from operator import attrgetter
from typing import TypeVar

from celery_ext.testing.memory_shelf import Kept, Shelf
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.redis.replies import as_bytes, as_text
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Cursor, Page, Part, QueueForm, Scanned, Waiting

T = TypeVar("T")

#: Digits of a message's number, at the beginning of what a page knows it by.
_ORDER_DIGITS = 12

#: The layout that this store shows.
LAYOUT = "hash"


class MemoryLookup:
    """The counterpart of ``kombu_delayq.store.lookup.Lookup``.

    Args:
        shelf: The messages.
        refused: Ids whose delay chains take no step.
        chains: Ids of delay chains that are known.
        now_ms: The clock, ms since the epoch.
        push: Pushes a message to its queue.
    """

    def __init__(
        self,
        shelf: Shelf,
        refused: set[str],
        chains: set[str],
        now_ms: Callable[[], float],
        push: Callable[[Waiting], None],
    ) -> None:
        self._shelf, self._refused, self._chains, self._now_ms, self._push = shelf, refused, chains, now_ms, push

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
                    has_step = any(CHAIN_ID.encode() in (kept.message.body or b"") for kept in removed)
                    (self._chains if has_step else self._refused).discard(identity)
        for messages in found.values():
            messages.sort(key=lambda message: message.due_ms)
        return found

    def reschedule(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Changes when messages of one queue are due, as ``Lookup.reschedule``."""

        def move(kept: Kept, change: Change) -> str:
            if change.due_ms <= self._now_ms():
                return "due"
            self._shelf.move(kept, change.due_ms, change.body)
            return "rescheduled"

        return [self._change(queue, change.message, move, change) for change in changes]

    def run_now(self, queue: str, changes: Sequence[Change]) -> list[str]:
        """Pushes messages of one queue before they are due, as ``Lookup.run_now``."""

        def push(kept: Kept, change: Change) -> str:
            self._shelf.remove(kept)
            self._push(kept.message._replace(body=change.body))
            return "transferred"

        return [self._change(queue, change.message, push, change) for change in changes]

    def discard(self, queue: str, messages: Sequence[tuple[Waiting, str]]) -> list[str]:
        """Removes messages of one queue that are still as they were read, as ``Lookup.discard``."""

        def remove(kept: Kept, chain: str) -> str:
            self._shelf.remove(kept)
            if chain:
                self._refused.add(chain)
                self._chains.discard(chain)
            return "cancelled"

        return [self._change(queue, message, remove, chain) for message, chain in messages]

    def _change(self, queue: str, read: Waiting, change: Callable[[Kept, T], str], wanted: T) -> str:
        with self._shelf.lock:
            kept = self._shelf.stored(queue, as_text(read.id))
            if kept is None:
                return "not_delayed"
            if (kept.message.body, kept.due_ms) != (read.body or b"", read.due_ms):
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
        places = tuple((LAYOUT, (_member(kept), as_bytes(repr(kept.due_ms)))) for kept in read)
        return Page([kept.message for kept in read], len(read) < len(left), ends | dict(places), places)

    def scan(
        self, part: Part, after: Scanned | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 500
    ) -> Scanned:
        """Reads a page of the messages of a queue, without bodies, as ``Scan.scan``. A queue is one part here."""
        left = self._behind(part.queue, after.last if after is not None else None, from_ms, to_ms)
        read = left[:count]
        return Scanned(
            [_member(kept) for kept in read],
            [as_bytes(repr(kept.due_ms)) for kept in read],
            [len(kept.message.body or b"") for kept in read],
            len(read) < len(left),
        )

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids under which messages are stored, as ``Scan.ids``."""
        return [member[_ORDER_DIGITS:] for member in members]

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return len(self._behind(queue, None, from_ms, to_ms))

    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[QueueForm, int]:
        """Counts messages as ``count`` does, by queue."""
        return {QueueForm(queue, LAYOUT): self.count(queue, from_ms, to_ms) for queue in queues}

    def _behind(self, queue: str, end: Cursor | None, from_ms: float, to_ms: float) -> list[Kept]:
        """Returns the messages that are due from ``from_ms`` on and before ``to_ms``, behind the end of a page."""
        messages = self._shelf.of(queue)
        first, last = (bisect_left(messages, bound_ms, key=attrgetter("due_ms")) for bound_ms in (from_ms, to_ms))
        if end is not None:
            place = float(end[1]), int(end[0][:_ORDER_DIGITS])
            first = max(first, bisect_right(messages, place, key=attrgetter("place")))
        return messages[first:last]


def _member(kept: Kept) -> bytes:
    """Returns by what a page knows a message."""
    return b"%0*d" % (_ORDER_DIGITS, kept.order) + as_bytes(kept.message.id)
