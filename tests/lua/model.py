"""What the store is to do, in plain Python: a list of waiting messages and the lists to which they go."""

from dataclasses import dataclass

from tests.lua.keyspace import FUTURE_MS, twin_id

STEPS = (0, 3, 6, 9)


@dataclass
class Message:
    """A message that waits.

    Attributes:
        identity: Its own id.
        stored: The id under which it is stored.
        order: Grows with each message that gets a due time.
    """

    identity: str
    stored: str
    due_ms: float
    priority: int
    body: str
    order: int

    @property
    def key(self) -> str:
        """The list that it goes to."""
        step = max(step for step in STEPS if step <= self.priority)
        return f"q\x06\x16{step}" if step else "q"

    @property
    def told(self) -> tuple[str, float, int, bytes]:
        """What the store tells of it."""
        return self.stored, self.due_ms, self.priority, self.body.encode()


class Model:
    """One queue; a due time is past, or later than any test."""

    def __init__(self) -> None:
        self.waiting: list[Message] = []
        self.ready: dict[str, list[str]] = {}
        self._count = 0

    def put(self, identity: str, due_ms: float, priority: int, body: str) -> str:
        """Takes a message in. Returns ``offered``, ``repeated`` or ``renamed``."""
        state, stored = "offered", identity
        holder = self.stored(identity)
        if holder is not None:
            stored = twin_id(identity, body, priority)
            if (holder.priority, holder.body) == (priority, body) or self.stored(stored) is not None:
                return "repeated"
            state = "renamed"
        self.waiting.append(Message(identity, stored, due_ms, priority, body, self._next()))
        return state

    def reschedule(self, stored: str, old_body: bytes | None, due_ms: float, body: bytes) -> str:
        """Changes when a message is due. Returns the word for it."""
        message = self.stored(stored)
        if message is None:
            return "not_delayed"
        if message.body.encode() != old_body:
            return "changed"
        if due_ms < FUTURE_MS:
            return "due"
        message.due_ms, message.body, message.order = due_ms, body.decode(), self._next()
        return "rescheduled"

    def run_now(self, stored: str, old_body: bytes | None, body: bytes) -> str:
        """Moves a message to its list. Returns the word for it."""
        message = self.stored(stored)
        if message is None:
            return "not_delayed"
        if message.body.encode() != old_body:
            return "changed"
        self.push(message, body.decode())
        return "transferred"

    def push(self, message: Message, body: str) -> None:
        """Moves a message to its list with a body."""
        self.waiting.remove(message)
        self.ready.setdefault(message.key, []).append(body)

    def stored(self, stored: str) -> Message | None:
        """Returns the message that is stored under an id."""
        return next((each for each in self.waiting if each.stored == stored), None)

    def find(self, identity: str) -> list[Message]:
        """Returns the messages that are found by an id: their own, or that under which one is stored."""
        return [each for each in self.waiting if identity in (each.identity, each.stored)]

    def in_order(self) -> list[Message]:
        """Returns all messages in the order of their delivery."""
        return sorted(self.waiting, key=lambda each: (each.due_ms, each.order))

    def head_ms(self) -> float | None:
        """Returns when the next message is due."""
        return min((each.due_ms for each in self.waiting), default=None)

    def _next(self) -> int:
        self._count += 1
        return self._count
