"""The store's operations on dead letters, which stand in ordinary queues of kombu."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from time import sleep
from typing import Literal, NamedTuple
from uuid import uuid4

from redis.exceptions import ResponseError

from kombu_delayq.message.dead_letters import buried_ms
from kombu_delayq.store.client import StorePart
from kombu_delayq.store.types import without_bodies
from kombu_delayq.text import as_bytes, as_text

#: A caller that gives no sign of life for ``REPLAYING_TTL_S`` loses its hold on a queue of dead letters. Other callers
#: ask every ``REPLAYING_POLL_S`` whether the queue is free. Both in s.
REPLAYING_TTL_S, REPLAYING_POLL_S = 15.0, 0.1
#: One call of ``prune`` reads so many letters of a list at once, and drops about so many of it at most.
PRUNE_PAGE, MOST_PRUNED = 100, 1000
#: How many of the latest letters of a list are searched for an id.
MOST_SEARCHED = 2_000
#: Most letters that are read in one call, and about the most bytes.
PAGE, PAGE_BYTES = 100, 1_000_000


class Letter(NamedTuple):
    """A dead letter and its goal.

    Attributes:
        message: The message as it is in the list of dead letters.
        to: ``queue`` to be consumed, ``back`` to the other end of its list, or ``away`` to be deleted.
        queue: With ``queue``: name of that queue.
        priority: 0 to 9; selects the list of that queue.
        body: The message as it is pushed to that list.
    """

    message: bytes
    to: Literal["queue", "back", "away"]
    queue: str = ""
    priority: int = 0
    body: bytes = b""

    def __repr__(self) -> str:
        return without_bodies(self)


def next_count(page: Sequence[bytes]) -> int:
    """Returns how many dead letters to read next, by the size of those of the last page."""
    size = sum(map(len, page)) // len(page)
    return max(1, min(PAGE, PAGE_BYTES // max(size, 1)))


class DeadLetters(StorePart):
    """Reads queues of dead letters, and sends their messages on. All calls are short, however much a queue holds."""

    def lists(self, queue: str) -> dict[str, int]:
        """Returns the lists of a dead letter queue, one for each priority step, with their lengths."""
        return {key: int(self._client.ask("LLEN", key)) for key in self._client.ready(queue)}

    def queues(self) -> list[str]:
        """Returns the names of the queues into which dead letters were put."""
        return sorted(map(as_text, self._client.redis.smembers(self._keys.dead_letters)))

    def latest(self, more: Iterable[str] = ()) -> Iterator[tuple[str, bytes]]:
        """Yields the latest ``MOST_SEARCHED`` letters of each queue and priority; nothing has an index of their ids.

        Args:
            more: Names of queues of dead letters, beside those that Redis knows.

        Yields:
            The queue and the message. A queue that Redis does not let read, or whose node is away, is left out.
        """
        for queue in sorted({*self.queues(), *more}):
            with suppress(*self._client.partial_errors):
                for key, length in self.lists(queue).items():
                    skip, count = max(length - MOST_SEARCHED, 0), PAGE
                    while skip < length and (page := self.page(key, skip, min(count, length - skip))):
                        yield from ((queue, message) for message in page)
                        skip, count = skip + len(page), next_count(page)

    def page(self, key: str, skip: int = 0, count: int = PAGE) -> list[bytes]:
        """Reads messages from the end of a list of dead letters, the oldest first, after ``skip`` of them."""
        [found] = self._client.send([("LRANGE", key, -skip - count, -skip - 1)])
        return [as_bytes(message) for message in reversed(found)]

    @contextmanager
    def replaying(self, queue: str) -> Iterator[Callable[[], None]]:
        """Holds a queue of dead letters, so that no other caller changes its order meanwhile.

        Waits until the queue is free. Yields a function that the caller must call at least every ``REPLAYING_TTL_S``:
        it renews the hold, and waits if another caller got hold of the queue in between.
        """
        name = uuid4().hex

        def hold() -> None:
            while not self._hold(queue, name):
                sleep(REPLAYING_POLL_S)

        hold()
        try:
            yield hold
        finally:
            self._release(queue, name)

    def prune(self, queue: str, before_ms: float | None, most: int | None) -> int:
        """Drops the oldest letters of a queue: those that are too old, and those that are too many.

        Messages that are no dead letters stay. While a caller replays, nothing is dropped.

        Args:
            queue: Name of the queue.
            before_ms: Letters that were buried before this are too old, ms since the epoch; None for none.
            most: How many letters may stay, priority by priority, the most urgent first; None for any number.

        Returns:
            Number of letters dropped. With ``MOST_PRUNED`` or more, there may be others to drop.
        """
        lists, name = {key: length for key, length in self.lists(queue).items() if length}, uuid4().hex
        if not lists or not self._hold(queue, name):
            return 0
        try:
            excess, dropped = 0 if most is None else sum(lists.values()) - most, 0
            for key in reversed(lists):
                dropped += self._prune(key, before_ms, excess - dropped)
            return dropped
        finally:
            self._release(queue, name)

    def _prune(self, key: str, before_ms: float | None, excess: int) -> int:
        skip = dropped = 0
        while dropped < MOST_PRUNED and (page := self.page(key, skip, PRUNE_PAGE)):
            buried = [(message, at_ms) for message in page if (at_ms := buried_ms(message)) is not None]
            doomed = [
                message
                for number, (message, at_ms) in enumerate(buried)
                if number < excess - dropped or (before_ms is not None and at_ms < before_ms)
            ]
            # The letters are at the end of the list, where LREM begins.
            dropped += sum(self._client.send([("LREM", key, -1, message) for message in doomed])) if doomed else 0
            skip += len(page) - len(doomed)
            if len(doomed) < len(buried) or skip >= MOST_PRUNED:
                break
        return dropped

    def _hold(self, queue: str, name: str) -> bool:
        args = [name, round(REPLAYING_TTL_S * 1000)]
        return as_text(self._client.run("lead", [self._keys.queues, self._keys.replaying(queue)], args)[0]) == name

    def _release(self, queue: str, name: str) -> None:
        self._client.run("release", [self._keys.replaying(queue)], [name])

    def replay(self, queue: str, key: str, letters: Sequence[Letter]) -> int:
        """Takes dead letters from the end of their list and sends them to their goals.

        These are in other slots. So the letters are pushed first and leave their list after that. If the caller dies in
        between, some are sent twice.

        Args:
            queue: Name of the queue of dead letters, in whose counters they are counted.
            key: One of its lists.
            letters: The oldest letters of the list, as they were read from it.

        Returns:
            Number of dead letters taken; fewer than given if another caller took some meanwhile.
        """
        letters = letters[: self._at_end(key, [letter.message for letter in letters])]
        self._push(letters)
        args: list[str | bytes | int] = [self._keys.counts(queue)]
        for letter in letters:
            args += [letter.message, "sent" if letter.to == "queue" else letter.to]
        return int(self._client.run("replay", [key], args)) if letters else 0

    def _at_end(self, key: str, messages: Sequence[bytes]) -> int:
        """Returns how many of some dead letters are still at the end of their list, in this order."""
        same = takewhile(
            lambda pair: pair[0] == pair[1], zip(messages, self.page(key, count=len(messages)), strict=False)
        )
        return sum(1 for _ in same)

    def _push(self, letters: Sequence[Letter]) -> None:
        commands = [("LPUSH", self._list_of(letter), letter.body) for letter in letters if letter.to == "queue"]
        if commands:
            self._check_types(dict.fromkeys(goal for _, goal, _ in commands))
            self._client.send(commands, once=True)

    def _check_types(self, goals: Iterable[str]) -> None:
        """Raises a ResponseError if a goal is no list. Else each replay of its letters would send the others again."""
        goals = list(goals)
        kinds = map(as_text, self._client.send([("TYPE", goal) for goal in goals]))
        for goal, kind in zip(goals, kinds, strict=True):
            if kind not in ("none", "list"):
                raise ResponseError(f"WRONGTYPE key {goal} holds a {kind}, kombu-delayq keeps a list there")

    def _list_of(self, letter: Letter) -> str:
        self._keys.check_queue(letter.queue)
        return self._client.ready(letter.queue)[self._client.list_of_priority[letter.priority]]
