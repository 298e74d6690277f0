"""A model of the store in Redisson's layout: a list of waiting messages, and the lists to which they go."""

import json
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from tests.support.store.keyspace import FUTURE_MS, duplicate_id

STEPS = (0, 3, 6, 9)


@dataclass
class Message:
    """A message that waits.

    Attributes:
        identity: Its own id.
        stored: The id under which it is stored.
        order: A number that grows with each message that gets a due time.
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
        return f"{{q}}\x06\x16{step}" if step else "q"

    @property
    def told(self) -> tuple[str, float, int, bytes]:
        """What the store says about the message."""
        return self.stored, self.due_ms, self.priority, self.body.encode()


class Head(NamedTuple):
    """When the next message was due, if there was one, and how many messages had got a due time by then."""

    due_ms: float | None
    count: int


class Model:
    """One queue. A due time is past, or after the end of every test.

    Due times are whole ms. Of the messages with one id, the first that still waits is stored under this id. Each other
    one is stored under an id of its own, made from the body that it has now.
    """

    def __init__(self) -> None:
        self.waiting: list[Message] = []
        self.ready: dict[str, list[str]] = {}
        #: Ids whose chains take no step, and ids of chains that may run.
        self.refused: set[str] = set()
        self.chains: set[str] = set()
        self._count = 0

    def put(self, identity: str, due_ms: float, priority: int, body: str) -> str:
        """Takes a message in. Returns ``offered``, ``repeated`` or ``renamed``."""
        same = [message for message in self.waiting if message.identity == identity]
        if any((message.priority, message.body) == (priority, body) for message in same):
            return "repeated"
        self.waiting.append(Message(identity, "", float(ceil(due_ms)), priority, body, self._next()))
        self._name()
        return "renamed" if same else "offered"

    def make_room(self, identity: str, number: int, chain: str) -> str:
        """Makes room for a step of a chain. Returns ``waits`` or ``cancelled`` if the step is not to be stored."""
        if identity in self.refused:
            self.chains.discard(identity)
            return "cancelled"
        for message in self.find(identity):
            if chain in message.body:
                if json.loads(message.body)["headers"]["retries"] >= number:
                    return "waits"
                self.remove([message])
        return ""

    def cancel(self, identity: str, mark: str) -> list[tuple[str, float, int, bytes]]:
        """Removes the messages of an id. Returns what the store says about them. mark: Text that all steps contain."""
        found = self.find(identity)
        told = self.told(found, identity)
        if found:
            has_step = any(mark in message.body for message in found)
            (self.chains if has_step else self.refused).discard(identity)
        self.remove(found)
        return told

    def reschedule(self, stored: str, read: tuple[float, bytes | None], due_ms: float, body: bytes) -> str:
        """Changes when a message is due. Returns the word for it. read: Due time and body as they were read."""
        message = self.stored(stored)
        if message is None:
            return "not_delayed"
        if (message.due_ms, message.body.encode()) != read:
            return "changed"
        if due_ms < FUTURE_MS:
            return "due"
        message.due_ms, message.body, message.order = float(ceil(due_ms)), body.decode(), self._next()
        self._name()
        return "rescheduled"

    def run_now(self, stored: str, read: tuple[float, bytes | None], body: bytes) -> str:
        """Moves a message to its list. Returns the word for it. read: As for ``reschedule``."""
        message = self.stored(stored)
        if message is None:
            return "not_delayed"
        if (message.due_ms, message.body.encode()) != read:
            return "changed"
        self.push(message, body.decode())
        return "transferred"

    def push(self, message: Message, body: str) -> None:
        """Moves a message to its list with a body."""
        self.remove([message])
        self.ready.setdefault(message.key, []).append(body)

    def remove(self, messages: list[Message]) -> None:
        """Takes messages away."""
        self.waiting = [message for message in self.waiting if all(message is not other for other in messages)]
        self._name()

    def stored(self, stored: str) -> Message | None:
        """Returns the first message that is found by an id."""
        return next(iter(self.find(stored)), None)

    def find(self, identity: str) -> list[Message]:
        """Returns the messages with this id; else the last message that is stored under it as a duplicate."""
        found = [message for message in self.waiting if message.identity == identity]
        duplicates = [
            message
            for message in self.waiting
            if duplicate_id(message.identity, message.body, message.priority) == identity
        ]
        return found or duplicates[-1:]

    def told(self, found: list[Message], identity: str) -> list[tuple[str, float, int, bytes]]:
        """Returns what the store tells of messages that were found by an id."""
        if found and found[0].identity != identity:
            return [(identity, *found[0].told[1:])]
        return [message.told for message in found]

    def in_order(self) -> list[Message]:
        """Returns all messages in the order of their delivery."""
        return sorted(self.waiting, key=lambda message: (message.due_ms, message.order))

    def head_ms(self) -> float | None:
        """Returns when the next message is due."""
        return min((message.due_ms for message in self.waiting), default=None)

    def head(self) -> Head:
        """Returns the present head, for ``has_new_head``."""
        return Head(self.head_ms(), self._count)

    def has_new_head(self, before: Head) -> bool:
        """Whether a new head is to be announced: a head that got its due time after ``before``."""
        return any(message.order > before.count for message in self.in_order()[:1])

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _name(self) -> None:
        taken: set[str] = set()
        for message in self.waiting:
            is_first = message.identity not in taken
            message.stored = (
                message.identity if is_first else duplicate_id(message.identity, message.body, message.priority)
            )
            taken.add(message.identity)
