"""The arguments and the results of the store's operations for consumers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from kombu_delayq.text import as_bytes, as_text

#: For a consumer that does not say how many of its processes are free.
MANY = 1_000_000
#: Most messages in the arguments of one call.
PAGE = 200
#: The layout of messages that wait beside Redis alone, as people and programs read it.
BESIDE = "journal"
#: What has become of a task: it is to be tried again, has failed for good, is a dead letter, or went back because its
#: worker does not know it. The process that sees it counts it.
Outcome: TypeAlias = Literal["retried", "failed", "dead", "unknown"]
#: Fields of tuples that logs must not get, because a task's arguments are in them.
_BODIES = frozenset(("body", "message", "note"))


def hidden(body: str | bytes | None) -> str:
    """Returns a body as a repr shows it: only its length, because logs must not get a task's arguments."""
    return "None" if body is None else f"<{len(body)} {'bytes' if isinstance(body, bytes) else 'characters'}>"


def without_bodies(shown: Any) -> str:
    """Returns a named tuple as a repr shows it, with the lengths of bodies in place of them."""
    fields = (f"{name}={hidden(value) if name in _BODIES else repr(value)}" for name, value in shown._asdict().items())
    return f"{type(shown).__name__}({', '.join(fields)})"


class Offer(NamedTuple):
    """A message on its way into the store.

    Attributes:
        id: The id under which the store keeps the message.
        due: Due time in ms since the epoch; ``"+"`` and ms count from its arrival at Redis.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
    """

    id: str | bytes
    due: str
    priority: int
    body: str | bytes

    def __repr__(self) -> str:
        return without_bodies(self)

    @property
    def size(self) -> int:
        """Length of the body, about in bytes."""
        return len(self.body)


class PageId(NamedTuple):
    """Identifies a page of messages, so that Redis recognizes it when it comes again.

    Attributes:
        sender: Name of the sender, which no other sender has.
        number: Number of the page, from 1.
    """

    sender: str
    number: int


class Beside(Protocol):
    """How that is which keeps messages beside Redis, such as a journal."""

    @property
    def error(self) -> str | None:
        """Why it does not answer; None if it does."""

    @property
    def waiting(self) -> Mapping[str, int]:
        """By queue, how many messages it alone has."""

    @property
    def problems(self) -> list[tuple[bool, str, str]]:
        """What is wrong, for people, the worst first: whether it is bad, a title, and a sentence."""


class Offered(NamedTuple):
    """The result of offering messages.

    Attributes:
        place: ``first`` (the queue was empty), ``head`` (one of the messages is the next due) or ``behind``.
        offered: Number of messages newly stored under their ids.
        repeated: Number of messages that were in the store already, byte for byte.
        renamed: Number of messages stored under an id with a suffix, because another message has their id.
    """

    place: str
    offered: int
    repeated: int
    renamed: int


class Transferred(NamedTuple):
    """The result of one call of the transfer script.

    Attributes:
        moved: Number of messages moved.
        lost: Number of index entries without a body; they are gone from the index.
        lateness_ms: How late the oldest message was, by Redis's clock, in ms; 0 if none was due.
        now_ms: Redis's clock.
        next_due_ms: When the queue's next message is due, or None; with ``held_back`` when to call again.
        dropped: Number of messages that were too late and are gone.
        held_back: Whether the queue's rate holds messages back that are due.
        too_late: Messages that are too late and are to be buried.
    """

    moved: int
    lost: int
    lateness_ms: float
    now_ms: float
    next_due_ms: float | None
    dropped: int = 0
    held_back: bool = False
    too_late: "tuple[TooLate, ...]" = ()

    @property
    def more(self) -> bool:
        """Whether another message is due already."""
        return self.next_due_ms is not None and self.next_due_ms <= self.now_ms


class TooLate(NamedTuple):
    """A waiting message that is too late to run.

    Attributes:
        key: The beginning of its index member, or all of it.
        due: Due time in ms since the epoch, as Redis writes it.
        priority: 0 to 9.
        body: The message; None if it is lost.
    """

    key: bytes
    due: bytes
    priority: int
    body: bytes | None

    def __repr__(self) -> str:
        return without_bodies(self)


class DelayedQueue(NamedTuple):
    """The messages of a queue that are kept in one layout.

    Attributes:
        queue: Its name.
        layout: Layout, ``hash`` or ``list``; or ``BESIDE``.
    """

    queue: str
    layout: str


class QueueHeads(NamedTuple):
    """The due time of each queue's head, which is the message that is due next.

    Attributes:
        now_ms: Redis's clock, ms since the epoch.
        due_ms: Due times in ms since the epoch, by queue and layout; without empty queues.
    """

    now_ms: float
    due_ms: dict[DelayedQueue, float]


class Head(NamedTuple):
    """The next message of a queue.

    Attributes:
        due_ms: When it is due, ms since the epoch; with ``held_back`` when it may leave.
        entry: The beginning of its index member, which the next message of the same due time does not share.
        held_back: Whether it was due before, and the rate of its queue held it back.
    """

    due_ms: float
    entry: bytes
    held_back: bool = False


class WatchedHeads(NamedTuple):
    """What a standby sees of the leading transfer worker's work.

    Attributes:
        now_ms: Redis's clock, ms since the epoch.
        is_gone: Whether nobody leads, or a worker that holds a lease has lost its connections.
        heads: By queue and layout; without empty queues.
        unseen: Those of the asked queues whose node does not answer.
    """

    now_ms: float
    is_gone: bool
    heads: dict[DelayedQueue, Head]
    unseen: frozenset[DelayedQueue] = frozenset()


class Memory(NamedTuple):
    """The memory of a Redis server.

    Attributes:
        used: Bytes in use; 0 if the server hides it.
        limit: ``maxmemory`` in bytes; 0 without a limit.
        version: Version of the server; empty if it hides it.
    """

    used: int
    limit: int
    version: str

    @property
    def share(self) -> float | None:
        """How much of the limit is in use, 0 to 1; None without a limit."""
        return self.used / self.limit if self.limit else None


class Waiting(NamedTuple):
    """A waiting message, as the store keeps it.

    Attributes:
        queue: The queue to which the message goes.
        id: The id under which the message is stored: its own id, with a suffix if another message has the same one.
        due_ms: Due time, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue, JSON; None if it is lost.
        layout: Layout in which the message is kept.
    """

    queue: str
    id: str
    due_ms: float
    priority: int
    body: bytes | None
    layout: str = "hash"

    def __repr__(self) -> str:
        return without_bodies(self)


def rows_of(parts: Sequence[Any], width: int = 4) -> Iterator[tuple[Any, ...]]:
    """Yields the rows of a flat reply: ``width`` items make a row."""
    return zip(*(iter(parts),) * width, strict=True)


def waiting_of(queue: str, layout: str, row: Iterable[Any]) -> Waiting:
    """Returns the message in a row of a reply: id, due time, priority, body. A lost message has an empty priority."""
    identity, due, priority, body = row
    return Waiting(
        queue, as_text(identity), float(due), int(priority or 0), as_bytes(body) if priority else None, layout
    )


#: Where a page or a part of a queue ends: the index member of a message, or a stand-in for it, and the due time.
Cursor = tuple[bytes, bytes]


class Page(NamedTuple):
    """Some waiting messages, in the order of their due times.

    Attributes:
        messages: The messages.
        more: Whether there is a next page.
        ends: Where this page ends among the messages of each layout; without layouts of which nothing was read yet.
        places: For each message its layout, and where a page would end that has this message last.
    """

    messages: list[Waiting]
    more: bool
    ends: Mapping[str, Cursor]
    places: tuple[tuple[str, Cursor], ...] = ()


class Part(NamedTuple):
    """Some consecutive waiting messages of a queue.

    Attributes:
        queue: Its name.
        after: Where the part before ends; None for the first part of the queue.
        until: Where this part ends; None for the last part of the queue.
        layout: Layout in which the messages are kept.
    """

    queue: str
    after: Cursor | None = None
    until: Cursor | None = None
    layout: str = "hash"


class Scanned(NamedTuple):
    """A page of a part, without bodies; its lists have one entry a message.

    Attributes:
        members: Index members, the next due first.
        dues: Due times in ms since the epoch, as Redis writes them.
        lengths: Stored bytes of each body with its mark; 0 for a lost body.
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
        """Where the next page begins; None if this page is empty."""
        return (self.members[-1], self.dues[-1]) if self.members else None


#: In place of the host in the names of leases for consumers over HTTP, see ``http_consumer``.
HTTP = "http"


class ConsumerLease(NamedTuple):
    """A consumer as Redis knows it.

    Attributes:
        name: ``host:pid:random``.
        left_ms: Time until its lease ends; negative once it has ended, ``-inf`` while what it held is reclaimed.
        queues: Names of the queues that it consumes.
        held: How many messages it had in hand at its latest heartbeat; None if it does not say so.
        held_s: For how long it has had the oldest of them by now, in s, up to a heartbeat too long; None without any.
        knows_places: Whether its version knows places, and so gets messages that wait apart from lists.
    """

    name: str
    left_ms: float
    queues: list[str]
    held: int | None = None
    held_s: float | None = None
    knows_places: bool = False

    @property
    def is_http(self) -> bool:
        """Whether it is no process, but a lease that a consumer over HTTP has for the messages of one take."""
        return self.host == HTTP and not self.name.rpartition(":")[2].isalnum()

    @property
    def host(self) -> str:
        """Name of the host on which it runs."""
        return self.name.rsplit(":", 2)[0]

    @property
    def pid(self) -> str:
        """Number of its process on that host; empty for a name of another layout."""
        return (self.name.rsplit(":", 2)[1:-1] or [""])[0]


class InFlight(NamedTuple):
    """An in-flight list: where a message is after a blocked consumer got it, and before it is noted as unacked.

    Attributes:
        queue: Name of the queue.
        step: Number of the queue's list from which the message comes, as in ``Keys.ready``.
        consumer: Name of the consumer.
    """

    queue: str
    step: int
    consumer: str


class Request(NamedTuple):
    """What a consumer wants to fetch.

    Attributes:
        consumer: Name of the consumer; empty where nothing is noted as unacked.
        first: Number in the tag of the first message. The caller has not used it, nor the ``most`` numbers from there.
        most: The most messages to fetch; 0 only puts back what is in in-flight lists.
        queues: Names of the queues, in the order in which they are served; in a cluster only one.
        in_turns: Whether queues are served in turns, a message of each; otherwise each is emptied before the next.
        unnoted: Those of the queues whose consumers do not acknowledge.
        in_flight: In-flight lists of the consumer that may hold a message. They are served first, and empty afterwards.
        free: How many of the messages may be such that take a place, because a process is free for them.
    """

    consumer: str = ""
    first: int = 0
    most: int = 0
    queues: Sequence[str] = ()
    in_turns: bool = True
    unnoted: Collection[str] = ()
    in_flight: Sequence[InFlight] = ()
    free: int = MANY


class Fetched(NamedTuple):
    """A message that a consumer has fetched.

    Attributes:
        tag: Delivery tag under which it is noted as unacked; empty where its consumer does not acknowledge.
        queue: Name of the queue from which it comes.
        body: The message.
    """

    tag: str
    queue: str
    body: bytes

    def __repr__(self) -> str:
        return without_bodies(self)


class Requeued(NamedTuple):
    """A message to put back.

    Attributes:
        tag: Delivery tag under which it is noted as unacked.
        queue: Name of its queue.
        priority: 0 to 9.
        body: The message as it will be in its list.
    """

    tag: str
    queue: str
    priority: int
    body: str | bytes

    def __repr__(self) -> str:
        return without_bodies(self)


class LeaseEnded(Exception):
    """A consumer's lease has ended: its messages go back to their queues, and its name may not be used any more."""


class Held(NamedTuple):
    """A message that a consumer holds.

    Attributes:
        tag: Its delivery tag.
        note: What kombu keeps of it: JSON of the message, its exchange and its routing key.
    """

    tag: str
    note: bytes | str

    def __repr__(self) -> str:
        return without_bodies(self)


class LeaseHeartbeat(NamedTuple):
    """A lease to renew.

    Attributes:
        consumer: Name of the consumer.
        group: Name of the slot group in which it has the lease.
        queues: Names of the queues that it consumes there.
        tags: Delivery tags of the messages that it holds there.
        is_new: Whether the name has no lease yet.
        subscribed: Whether it has subscribed to its channel, so that its death is noticed within seconds.
        held_s: For how long it has held the oldest of them, in s; None if nobody knows.
    """

    consumer: str
    group: str
    queues: Sequence[str]
    tags: Sequence[str]
    is_new: bool
    subscribed: bool = False
    held_s: float | None = None
