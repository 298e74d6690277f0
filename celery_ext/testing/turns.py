"""The turns of the keys of limits, by the clock of a test: which message may go next, and when one that may not can."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from kombu.message import Message

from celery_ext.limits import LIMIT_HEADER, Limit

#: By how much sums of times may differ, in s.
ROUNDING_S = 0.001


@dataclass
class _SubQueue:
    """What waits for the turns of a key.

    Attributes:
        limit: The limit of the key.
        messages: Its messages, each with its queue, the next one first.
        time: Its virtual time: the key with the least has its turn.
        full_s: When it has all tokens of its rate again, s since the epoch.
        rests_s: Until when it rests, s since the epoch.
    """

    limit: Limit = field(default_factory=Limit)
    messages: deque[tuple[str, Message]] = field(default_factory=deque)
    time: float = 0.0
    full_s: float = -inf
    rests_s: float = -inf

    @property
    def pause_s(self) -> float:
        """The time between two starts, in s."""
        return 1 / self.limit.rate if self.limit.rate else 0.0

    @property
    def next_s(self) -> float:
        """When the next message may go, s since the epoch."""
        burst = max(self.limit.rate or 0, 1) if self.limit.burst is None else self.limit.burst
        return inf if self.limit.running == 0 else max(self.rests_s, self.full_s - (burst - 1) * self.pause_s)


class Turns:
    """Lets messages go as fetching does: keys in turns, none during its rest, and none faster than its rate.

    One task runs at a time in a test, so that of the bound of running tasks only the pause, 0, can be seen.

    Args:
        now_s: The clock, s since the epoch.

    Attributes:
        next_s: When the first of those may go that were left, s since the epoch; infinity for not by itself.
        held: The messages that were left, as text.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.next_s, self.held = inf, list[str]()
        self._now_s, self._turn = now_s, 0.0
        self._keys: dict[tuple[str, str], _SubQueue] = {}

    def add(self, queue: str, message: Message, limits: Mapping[str, Any]) -> None:
        """Adds a message that waits. Those without a key are one key among the others, in all queues together.

        Args:
            queue: Its queue.
            message: The message.
            limits: The option ``limits`` of its app.
        """
        name = key_of(message)
        key = self._keys.setdefault((queue, name) if name else ("", ""), _SubQueue())
        key.limit = Limit.of(limits.get(name.partition(":")[0]) or {})
        if not key.messages:
            key.time = max(key.time, self._turn)
        key.messages.append((queue, message))

    def take(self) -> tuple[str, Message] | None:
        """Takes the message whose turn it is, with its queue; None if none may go now."""
        now_s = self._now_s()
        keys = [key for key in self._keys.values() if key.messages and key.next_s <= now_s + ROUNDING_S]
        if not keys:
            return None
        key = min(keys, key=lambda one: one.time)
        self._turn = max(self._turn, key.time)
        key.time = self._turn + 1 / (key.limit.weight or 1)
        if key.pause_s:
            key.full_s = max(key.full_s, now_s) + key.pause_s
        return key.messages.popleft()

    def rest(self, queue: str, message: Message, seconds: float) -> None:
        """Lets the key of a message rest for so many s, unless it rests for longer."""
        key = self._keys.setdefault((queue, key_of(message)), _SubQueue())
        key.rests_s = max(key.rests_s, self._now_s() + seconds)

    def leave(self) -> list[tuple[str, Message]]:
        """Gives up what waits, and notes when the first of it may go. Keys keep their rests and what they have used."""
        left = [key for key in self._keys.values() if key.messages]
        self.next_s = min((key.next_s for key in left), default=inf)
        messages = [each for key in left for each in key.messages]
        self.held = [f"{message.headers.get('task')} ({key_of(message)})" for _, message in messages]
        for key in left:
            key.messages.clear()
        return messages


def key_of(message: Message) -> str:
    """Returns the key of a message; empty for none."""
    return str((message.headers or {}).get(LIMIT_HEADER) or "")
