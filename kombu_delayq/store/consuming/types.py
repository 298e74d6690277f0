"""The arguments and the results of the store's operations for consumers."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kombu_delayq.store.types import hidden

#: In place of the host in the names of leases for consumers over HTTP, see ``lent_name``.
LENT = "http"


class ConsumerLease(NamedTuple):
    """A consumer as Redis knows it.

    Attributes:
        name: ``host:pid:random``.
        left_ms: Time until its lease ends; negative once it has ended, ``-inf`` while what it held is reclaimed.
        queues: Names of the queues that it consumes.
    """

    name: str
    left_ms: float
    queues: list[str]

    @property
    def is_lent(self) -> bool:
        """Whether it is no process, but a lease that a consumer over HTTP has for the messages of one take."""
        return self.host == LENT and not self.name.rpartition(":")[2].isalnum()

    @property
    def host(self) -> str:
        """Name of the host on which it runs."""
        return self.name.rsplit(":", 2)[0]

    @property
    def pid(self) -> str:
        """Number of its process on that host; empty for a name of another layout."""
        return (self.name.rsplit(":", 2)[1:-1] or [""])[0]


class Landing(NamedTuple):
    """A landing list: where a message is after a blocked consumer got it, and before it is noted as unacked.

    Attributes:
        queue: Name of the queue.
        step: Number of the queue's list from which the message comes, as in ``Keys.ready``.
        consumer: Name of the consumer.
    """

    queue: str
    step: int
    consumer: str


class Request(NamedTuple):
    """What a consumer wants to take.

    Attributes:
        consumer: Name of the consumer.
        first: Number in the tag of the first message. The caller has not used it, nor the ``most`` numbers from there.
        most: The most messages to take; 0 only puts back what is in landing lists.
        queues: Names of the queues, in the order in which they are served; in a cluster only one.
        in_turns: Whether queues are served in turns, a message of each; otherwise each is emptied before the next.
        unnoted: Those of the queues whose consumers do not acknowledge.
        landings: Landing lists of the consumer that may hold a message. They are served first, and empty afterwards.
    """

    consumer: str
    first: int
    most: int
    queues: Sequence[str]
    in_turns: bool = True
    unnoted: Collection[str] = ()
    landings: Sequence[Landing] = ()


class Taken(NamedTuple):
    """A message that a consumer has taken.

    Attributes:
        tag: Delivery tag under which it is noted as unacked; empty where its consumer does not acknowledge.
        queue: Name of the queue from which it comes.
        body: The message.
    """

    tag: str
    queue: str
    body: bytes

    def __repr__(self) -> str:
        return f"Taken(tag={self.tag!r}, queue={self.queue!r}, body={hidden(self.body)})"


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
        return f"Requeued(tag={self.tag!r}, queue={self.queue!r}, body={hidden(self.body)})"


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
        return f"Held(tag={self.tag!r}, note={hidden(self.note)})"


class Beat(NamedTuple):
    """A lease to renew.

    Attributes:
        consumer: Name of the consumer.
        share: In which share it has the lease.
        queues: Names of the queues that it consumes there.
        tags: Delivery tags of the messages that it holds there.
        is_new: Whether the name has no lease yet.
    """

    consumer: str
    share: str
    queues: Sequence[str]
    tags: Sequence[str]
    is_new: bool
