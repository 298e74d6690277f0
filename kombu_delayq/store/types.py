"""What goes into the store's operations and what comes out of them."""

from dataclasses import dataclass
from typing import Literal, NamedTuple


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
        latest_ms: How late the message due first was, by Redis's clock; 0 when none was due.
        now_ms: Redis's clock.
        next_due_ms: When the queue's next message is due, or None.
    """

    moved: int
    lost: int
    latest_ms: float
    now_ms: float
    next_due_ms: float | None

    @property
    def more(self) -> bool:
        """Whether another message is due already."""
        return self.next_due_ms is not None and self.next_due_ms <= self.now_ms


class Converted(NamedTuple):
    """What one call moved from one form of backup to the other.

    Attributes:
        moved: Number of messages that it moved.
        lost: Number of index entries without a body; they are gone from the index.
        left: Number of messages that are still in the other form.
        stranded: Number of bodies there that no message belongs to, once no message is left; ``delayq repair`` mends
            that.
    """

    moved: int
    lost: int
    left: int
    stranded: int


class Lease(NamedTuple):
    """Who leads the transfer.

    Attributes:
        leader: Name of the leading transfer worker.
        queues: Queues that hold or held delayed messages.
        rank: Of the worker that asked: 1 leads, 2 and 3 are its deputies, one of which leads next, and 0 stands by.
    """

    leader: str
    queues: list[str]
    rank: int


class QueueForm(NamedTuple):
    """The messages of a queue that are kept in one form.

    Attributes:
        queue: Its name.
        backup: Form of backup, ``hash`` or ``list``.
    """

    queue: str
    backup: str


class Heads(NamedTuple):
    """When the next message of each queue is due.

    Attributes:
        now_ms: Redis's clock.
        due_ms: By queue and form of backup; those without delayed messages are left out.
    """

    now_ms: float
    due_ms: dict[QueueForm, float]


@dataclass(frozen=True)
class QueueStats:
    """Numbers of one queue, all of one moment.

    Attributes:
        now_ms: Redis's clock.
        delayed: Number of messages that wait for their due time, overdue ones among them.
        ready: Number of messages that wait for a consumer.
        overdue: Number of delayed messages whose due time is past.
        next_due_ms: When the next one is due, or None.
    """

    queue: str
    now_ms: float
    delayed: int
    ready: int
    overdue: int
    next_due_ms: float | None

    @property
    def overdue_ms(self) -> float:
        """How long the oldest overdue message has been due, 0 if none is."""
        return max(self.now_ms - self.next_due_ms, 0.0) if self.next_due_ms is not None else 0.0


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


class Change(NamedTuple):
    """What is to become of a waiting message.

    Attributes:
        message: As it was read; another that took its place is left alone.
        due_ms: New due time, ms since the epoch.
        body: New body, which says the new due time too.
    """

    message: Waiting
    due_ms: float
    body: bytes

    def __repr__(self) -> str:
        return f"Change(message={self.message!r}, due_ms={self.due_ms!r}, body={hidden(self.body)})"


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


class Letter(NamedTuple):
    """A dead letter, and where it goes.

    Attributes:
        message: As it is in the list of dead letters.
        to: ``queue`` to be consumed, ``back`` to the other end of its list, or ``away``.
        queue: Name of the queue, if it goes to one.
        priority: 0 to 9, which decides on the list of that queue.
        body: The message as it is pushed there.
    """

    message: bytes
    to: Literal["queue", "back", "away"]
    queue: str = ""
    priority: int = 0
    body: bytes = b""

    def __repr__(self) -> str:
        return (
            f"Letter(message={hidden(self.message)}, to={self.to!r}, queue={self.queue!r}, priority={self.priority}, "
            f"body={hidden(self.body)})"
        )
