"""The store's operations that move messages of a queue to another queue, such as one with a new name."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from redis.exceptions import NoPermissionError

from kombu_delayq.connection.text import as_bytes, as_text, digest
from kombu_delayq.message.pages import pages
from kombu_delayq.store.client import StoreClient, StorePart
from kombu_delayq.store.lookup import CHANGES_A_CALL, as_read
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.searching import MAX_BYTES
from kombu_delayq.store.types import Waiting, hidden

#: For how long it is remembered that the messages of a move have come, after nobody has them on their way, in s: for a
#: process that has read them and stands still.
REMEMBERED_S = 86_400


class Move(NamedTuple):
    """A waiting message that goes to another queue.

    Attributes:
        message: The message as it was read. If another message has its id now, that one stays as it is.
        body: New body, which names the other queue.
    """

    message: Waiting
    body: bytes

    def __repr__(self) -> str:
        return f"Move(message={self.message!r}, body={hidden(self.body)})"


class Underway(NamedTuple):
    """Messages on their way from a queue to another, in hash slots.

    Attributes:
        name: Name of their move.
        to: The queue to which they go.
        size: How many they are.
    """

    name: str
    to: str
    size: int


class Moving(StorePart):
    """Moves waiting messages from queue to queue. They keep due time, id and priority.

    On a plain server a message moves in one step. Where Redis keeps its keys in hash slots, it takes two: they leave
    their queue for a list in its slot, with the name of the move, and come into the other queue, which notes that name
    in the same step. Whoever finds such a list finishes the move. So each message comes once, whoever dies when.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client)
        self._registry = registry

    def move_to(self, queue: str, to: str, moves: Sequence[Move]) -> list[str]:
        """Moves messages of one queue to another.

        Args:
            queue: The queue that they leave.
            to: The queue to which they go.
            moves: The messages, in the store's own form of backup.

        Returns:
            A word for each message: ``moved``; or, with nothing changed, ``not_delayed`` (it no longer waits there) or
            ``changed`` (another body, or another due time, waits under its id by now).

        Raises:
            InvalidQueueName: The other queue cannot be in Redis Cluster. No message has left its queue.
        """
        self._keys.check_queue(to)
        words: list[str] = []
        size = CHANGES_A_CALL[self._client.backup]
        for part in pages(moves, size, MAX_BYTES, lambda one: len(one.body)):
            words += (self._move_apart if self._keys.slots else self._move)(queue, to, part)
        return words

    def next_ready(self, queue: str, count: int) -> list[list[bytes]]:
        """Returns the next messages of a queue that are ready for a consumer: ``count`` of each of its lists."""
        found = self._client.send([("LRANGE", key, -count, -1) for key in self._client.ready(queue)])
        return [list(map(as_bytes, reversed(messages))) for messages in found]

    def move_ready(self, queue: str, to: str, at: int, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """Moves messages that are ready for a consumer, in hash slots in the two steps of those that wait.

        Args:
            queue: The queue that they leave.
            to: The queue to which they go.
            at: Which of its lists they are in, as of ``next_ready``.
            messages: The next messages of the list as they were read, the next one first, each with its new bytes.

        Returns:
            How many were moved; fewer than given if a consumer has taken some meanwhile.

        Raises:
            InvalidQueueName: The other queue cannot be in Redis Cluster. No message has left its queue.
        """
        self._keys.check_queue(to)
        act = self._move_ready_apart if self._keys.slots else self._move_ready
        moved = 0
        for part in pages(messages, len(messages), MAX_BYTES, lambda one: len(one[1])):
            count = act(queue, to, at, part)
            moved += count
            if count < len(part):
                break
        return moved

    def resume(self, queue: str) -> int:
        """Finishes a move out of a queue whose process has died half way. Returns how many messages it has brought.

        If that process lives, it finds its move finished, and goes on.
        """
        if not self._keys.slots:
            return 0
        found = self._client.redis.lrange(self._keys.moving(queue), 0, -1)
        if not found:
            return 0
        name, to, *rows = map(as_bytes, found)
        self.arrive(queue, as_text(name), as_text(to), rows)
        return len(rows) // 4

    def unfinished(self, queues: Sequence[str]) -> list[str]:
        """Returns those of some queues out of which messages are on their way; one round trip, none on a plain server.

        While a process moves messages they are so for a moment, a page of them at a time. Queues whose node does not
        answer are left out.
        """
        if not (self._keys.slots and queues):
            return []
        replies = self._client.replies([("EXISTS", self._keys.moving(queue)) for queue in queues])
        for reply in replies:
            if isinstance(reply, NoPermissionError):
                raise reply
        return [queue for queue, reply in zip(queues, replies, strict=True) if reply == 1]

    def underway(self, queue: str) -> Underway | None:
        """Returns what is on its way out of a queue; one round trip, none on a plain server."""
        if not self._keys.slots:
            return None
        moving = self._keys.moving(queue)
        size, head = self._client.send([("LLEN", moving), ("LRANGE", moving, 0, 1)])  # name of the move, other queue
        return Underway(as_text(head[0]), as_text(head[1]), (size - 2) // 4) if head else None

    def _move(self, queue: str, to: str, part: Sequence[Move]) -> list[str]:
        keys = [*self._client.stored(to), *self._client.stored(queue)]
        reply = self._registry.run("move_to", to, keys, [self._client.wake(to), to, *args_of(part)])
        return [as_text(word) for word in reply[1:]]

    def _move_apart(self, queue: str, to: str, part: Sequence[Move]) -> list[str]:
        self._registry.add(queue)  # so that others find what is on its way if this process dies
        while True:
            words = self.depart(queue, to, part, uuid4().hex)
            self.resume(queue)
            if words != ["busy"]:
                return words

    def _move_ready(self, queue: str, to: str, at: int, messages: Sequence[tuple[bytes, bytes]]) -> int:
        keys = [self._client.ready(queue)[at], self._client.ready(to)[at]]
        return int(self._client.run("move_ready", keys, _ready_args(messages)))

    def _move_ready_apart(self, queue: str, to: str, at: int, messages: Sequence[tuple[bytes, bytes]]) -> int:
        self._registry.add(queue)
        while True:
            moved = self.depart_ready(queue, to, at, messages, uuid4().hex)
            self.resume(queue)
            if moved is not None:
                return moved

    def depart(self, queue: str, to: str, moves: Sequence[Move], name: str, done: str = "") -> list[str]:
        """Takes messages out of a queue, on their way to another, in hash slots.

        Args:
            queue: The queue that they leave.
            to: The queue to which they go.
            moves: The messages.
            name: Name of the move, which no other move has.
            done: Name of a move whose messages have come, and are on their way no more.

        Returns:
            A word for each message, as of ``move_to``; or only ``busy``, while those of another move are on their way.
        """
        keys = [*self._client.stored(queue), self._keys.moving(queue)]
        return list(map(as_text, self._client.run("depart", keys, [name, to, done, *args_of(moves)])))

    def depart_ready(
        self, queue: str, to: str, at: int, messages: Sequence[tuple[bytes, bytes]], name: str
    ) -> int | None:
        """Takes messages that are ready for a consumer out of a queue, on their way to another, in hash slots.

        Args:
            queue: As of ``move_ready``.
            to: As of ``move_ready``.
            at: As of ``move_ready``.
            messages: As of ``move_ready``.
            name: Name of the move, which no other move has.

        Returns:
            How many are on their way, or None while those of another move are.
        """
        keys = [self._client.ready(queue)[at], self._keys.moving(queue)]
        moved = int(self._client.run("depart_ready", keys, [name, to, at, *_ready_args(messages)]))
        return None if moved < 0 else moved

    def arrive(self, queue: str, name: str, to: str, rows: Sequence[bytes]) -> str:
        """Puts messages of a move into the other queue, once, and ends the move, in hash slots.

        Args:
            queue: The queue that they left.
            name: Name of the move.
            to: The queue to which they go.
            rows: Four items a message, as ``depart`` or ``depart_ready`` have left them.

        Returns:
            ``repeated`` if they had come before; else as ``Offered.place``.
        """
        arrived = self._keys.arrived(to, name)
        keys = [*self._client.stored(to), arrived, *self._client.ready(to)]
        place = self._registry.run("arrive", to, keys, [self._client.wake(to), to, *rows])
        # The list goes only if it is still that of this move: another process may have finished it, and begun its own.
        self.depart(queue, to, (), "", done=name)
        self._client.ask("EXPIRE", arrived, REMEMBERED_S)
        return as_text(place)


def args_of(moves: Sequence[Move]) -> list[Any]:
    """Returns the ARGV of the scripts for messages, one after the other: id, SHA-1 of the body, due time, new body."""
    args: list[Any] = []
    for message, body in moves:
        args += [*as_read(message), body]
    return args


def _ready_args(messages: Sequence[tuple[bytes, bytes]]) -> list[Any]:
    """Returns what the scripts are told of ready messages: SHA-1, new bytes."""
    return [one for message, new in messages for one in (digest(message), new)]
