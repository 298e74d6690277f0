"""What goes into the store's operations and what comes out of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kombu_delayq.connection.text import as_bytes, as_text


def hidden(body: str | bytes | None) -> str:
    """Returns how a body is shown in a repr, which may come into logs: by its length, for it has arguments."""
    return "None" if body is None else f"<{len(body)} {'bytes' if isinstance(body, bytes) else 'characters'}>"


class Offer(NamedTuple):
    """A message on its way into the store.

    Attributes:
        id: Under which the store keeps it.
        due: Due time in ms since the epoch; ``"+"`` and ms count from its arrival at Redis.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
    """

    id: str | bytes
    due: str
    priority: int
    body: str | bytes

    def __repr__(self) -> str:
        return f"Offer(id={self.id!r}, due={self.due!r}, priority={self.priority}, body={hidden(self.body)})"

    @property
    def size(self) -> int:
        """Length of the body, about in bytes."""
        return len(self.body)


class PageId(NamedTuple):
    """Which page of messages it is, by which it is known when it is sent again.

    Attributes:
        sender: Who sends it: the same for all its pages, and for those of no other.
        number: From 1 on.
    """

    sender: str
    number: int


class Offered(NamedTuple):
    """What became of offered messages.

    Attributes:
        place: ``first`` (the queue held none), ``head`` (one is due before all others) or ``behind``.
        offered: Number of messages newly stored under their ids.
        repeated: Number that were in the store already, byte for byte.
        renamed: Number stored under an id of their own, because other bytes held theirs.
    """

    place: str
    offered: int
    repeated: int
    renamed: int


class Transferred(NamedTuple):
    """What one call of the transfer script did.

    Attributes:
        moved: Number of messages moved.
        lost: Number of index entries without a body; they are gone from the index.
        lateness_ms: How late the message due first was, by Redis's clock; 0 when none was due.
        now_ms: Redis's clock.
        next_due_ms: When the queue's next message is due, or None.
    """

    moved: int
    lost: int
    lateness_ms: float
    now_ms: float
    next_due_ms: float | None

    @property
    def more(self) -> bool:
        """Whether another message is due already."""
        return self.next_due_ms is not None and self.next_due_ms <= self.now_ms


class QueueForm(NamedTuple):
    """The messages of a queue that are kept in one form.

    Attributes:
        queue: Its name.
        backup: Form of backup, ``hash`` or ``list``.
    """

    queue: str
    backup: str


class QueueHeads(NamedTuple):
    """When the next message of each queue is due.

    Attributes:
        now_ms: Redis's clock.
        due_ms: By queue and form of backup; those without delayed messages are left out.
    """

    now_ms: float
    due_ms: dict[QueueForm, float]


class Waiting(NamedTuple):
    """A message that waits, as the store keeps it.

    Attributes:
        queue: Where it goes.
        id: Under which it is stored: its own, or with a suffix when another message has that.
        due_ms: When it is due, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue, JSON; None when it is lost.
        backup: Form of backup in which it is.
    """

    queue: str
    id: str
    due_ms: float
    priority: int
    body: bytes | None
    backup: str = "hash"

    def __repr__(self) -> str:
        return (
            f"Waiting(queue={self.queue!r}, id={self.id!r}, due_ms={self.due_ms!r}, priority={self.priority}, "
            f"body={hidden(self.body)}, backup={self.backup!r})"
        )


def rows_of(parts: Sequence[Any], width: int = 4) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a reply that has one column after the other."""
    return zip(*(iter(parts),) * width, strict=True)


def waiting_of(queue: str, backup: str, row: Iterable[Any]) -> Waiting:
    """Returns a message of a row of a reply: id, due time, priority, which is empty for a lost one, and body."""
    identity, due, priority, body = row
    return Waiting(
        queue, as_text(identity), float(due), int(priority or 0), as_bytes(body) if priority else None, backup
    )


#: Where a part of a queue ends, or a page: index member, or what stands for it, and due time of a message.
Cursor = tuple[bytes, bytes]


class Page(NamedTuple):
    """Some waiting messages, in the order of their due times.

    Attributes:
        messages: The messages.
        last: Where the next page begins among the messages of one form of backup.
        more: Whether there is a next page.
        backup: That form, the store's own.
        other: Where it begins among those of the other form.
    """

    messages: list[Waiting]
    last: Cursor
    more: bool
    backup: str
    other: Cursor = (b"", b"")


class Part(NamedTuple):
    """Some consecutive waiting messages of a queue.

    Attributes:
        queue: Its name.
        after: Where the part before ends; None where the queue begins.
        until: Where this one ends; None where the queue ends.
        backup: Form of backup in which they are.
    """

    queue: str
    after: Cursor | None = None
    until: Cursor | None = None
    backup: str = "hash"


class Scanned(NamedTuple):
    """A page of a part, without bodies; its lists have one entry a message.

    Attributes:
        members: Index members, the next due first.
        dues: Due times in ms since the epoch, as Redis writes them.
        lengths: Bytes that are stored of each body, with its mark; 0 for one that is lost.
        more: Whether there is a next page.
    """

    members: list[bytes]
    dues: list[bytes]
    lengths: list[int]
    more: bool

    def __repr__(self) -> str:
        return f"Scanned(<{len(self.members)} messages>, more={self.more})"

    @property
    def last(self) -> Cursor | None:
        """Where the next page begins; None when there is nothing on this one."""
        return (self.members[-1], self.dues[-1]) if self.members else None
