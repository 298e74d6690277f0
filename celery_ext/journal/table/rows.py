"""The rows of the journal: a message each."""

from hashlib import blake2b
from typing import NamedTuple

from kombu_delayq.connection.text import as_bytes
from kombu_delayq.message.seal import unsigned
from kombu_delayq.store.types import Waiting, hidden
from kombu_delayq.store.upkeep import promotion_types

#: State of a row whose message is in the journal only. Any other state is the epoch in which Redis was given it.
WAITING = 0
#: State of a row whose message Redis was given, and has not any more, though it was neither delivered nor cancelled.
MISSING = -1


class Addition(NamedTuple):
    """A message on its way into the journal.

    Attributes:
        queue: The queue to which it goes when it is due.
        id: The id under which Redis would keep it.
        due_ms: Due time, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
        expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        key: What makes it the same message, where that is not its content: the job and the id of a bulk job's row.
    """

    queue: str
    id: str
    due_ms: float
    priority: int
    body: bytes
    expire_ms: int = 0
    key: bytes = b""

    def __repr__(self) -> str:
        return f"Addition(queue={self.queue!r}, id={self.id!r}, due_ms={self.due_ms!r}, body={hidden(self.body)})"

    @property
    def digest(self) -> bytes:
        """What makes it the same message: 16 bytes from its key, else from queue, priority and ``unsigned`` body."""
        if self.key:
            return blake2b(self.key, digest_size=16, person=b"key").digest()
        queue = as_bytes(self.queue)
        found = blake2b(b"%d %d " % (self.priority, len(queue)), digest_size=16)
        found.update(queue)
        found.update(unsigned(self.body))
        return found.digest()


class Row(NamedTuple):
    """A message in the journal.

    Attributes:
        seq: Number of the row, which no other row ever has. A message that is changed gets a new one.
        queue: As in ``Addition``.
        id: As in ``Addition``.
        due_ms: As in ``Addition``.
        priority: As in ``Addition``.
        expire_ms: As in ``Addition``.
        state: ``WAITING``, ``MISSING``, or the epoch in which Redis was given it.
        body: As in ``Addition``.
    """

    seq: int
    queue: str
    id: str
    due_ms: float
    priority: int
    expire_ms: int
    state: int
    body: bytes

    def __repr__(self) -> str:
        return (
            f"Row(seq={self.seq}, queue={self.queue!r}, id={self.id!r}, due_ms={self.due_ms!r}, state={self.state}, "
            f"body={hidden(self.body)})"
        )

    @property
    def waiting(self) -> Waiting:
        """The message as the store shows it."""
        return Waiting(self.queue, self.id, self.due_ms, self.priority, self.body, "journal")

    @property
    def for_redis(self) -> promotion_types.Row:
        """The row as the store takes it in."""
        return promotion_types.Row(self.seq, self.queue, self.id, self.due_ms, self.priority, self.body, self.expire_ms)
