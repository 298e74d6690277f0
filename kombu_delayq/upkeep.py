"""The store's operations on whole queues: purge, repair, dead letters."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any, cast
from uuid import uuid4

from redis.exceptions import ResponseError

from kombu_delayq.calls import Caller, as_bytes, as_text, in_each_form
from kombu_delayq.results import Letter

#: How many entries one call of ZSCAN, HSCAN or SCAN looks at, about.
SCAN_INDEX, SCAN_BACKUP, SCAN_KEYS = 250, 100, 1000

#: How long one may go through dead letters without a sign of life, and how often others ask whether it is done, in s.
REPLAYING_TTL_S, REPLAYING_POLL_S = 15.0, 0.1


class Upkeep(Caller):
    """Keeps queues in order. All calls are short, however much a queue holds."""

    _held_others: set[str]

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue. Returns how many."""
        # First, so that a message offered meanwhile, which finds the queue empty, is the one to be told last.
        self.client.srem(self.keys.queues, queue)
        self._held_others.discard(queue)
        try:
            count = int(self._run("purge", self._stored(queue), []))
            return count + self._purge_other(queue)
        except ResponseError:
            self.client.sadd(self.keys.queues, queue)  # what it holds must still be transferred
            raise

    def repair_index(self, queue: str, members: Sequence[bytes], *, mend: bool) -> list[str]:
        """Checks index entries, and with ``mend`` removes those that are not sound.

        Returns:
            For each: ``sound``, ``gone`` (it left meanwhile), ``lost`` (no body has its id) or ``stale`` (the body has
            another entry, which gets the due time if it has none).
        """
        return list(map(as_text, self._run("repair_index", self._stored(queue), [int(mend), *members])))

    def repair_backup(self, queue: str, bodies: Sequence[tuple[bytes, float | None]], *, mend: bool) -> list[str]:
        """Checks bodies, and with ``mend`` gives them what they lack.

        Args:
            queue: Its name.
            bodies: Id and due time in ms since the epoch of each; with None, one without an index entry is left so.
            mend: Whether to change anything.

        Returns:
            For each the worst: ``gone`` (it left meanwhile), ``unindexed`` (it would never be delivered),
            ``untwinned`` (it cannot be found by its id), ``misordered`` (later messages of its due time would go before
            it) or ``sound``.
        """
        args: list[Any] = [self._wake(queue), queue, int(mend)]
        for identity, due_ms in bodies:
            args += [identity, "" if due_ms is None else repr(due_ms)]
        return list(map(as_text, self._run("repair_backup", self._stored(queue), args)))

    def index_pages(self, queue: str) -> Iterator[list[bytes]]:
        """Yields the members of a queue's index in parts, in any order; some twice."""
        cursor = -1
        while cursor:
            cursor, found = self.client.zscan(self.keys.due(queue), max(cursor, 0), count=SCAN_INDEX)
            yield [as_bytes(member) for member, _ in cast(Any, found)]

    def backup_pages(self, queue: str) -> Iterator[dict[bytes, bytes]]:
        """Yields the bodies of a queue by id in parts, in any order, as they are kept; some twice."""
        cursor = -1
        while cursor:
            cursor, found = self.client.hscan(self.keys.backup(queue), max(cursor, 0), count=SCAN_BACKUP)
            yield {as_bytes(identity): as_bytes(value) for identity, value in cast(Any, found).items()}

    def queue_pages(self) -> Iterator[set[str]]:
        """Yields the names of queues that have keys of ours, in parts: searches the whole database; some twice."""
        cursor = -1
        while cursor:
            cursor, found = self.client.scan(max(cursor, 0), match=self.keys.of_any_queue, count=SCAN_KEYS)
            names = (self.keys.queue_of(as_text(key)) for key in found)
            yield {name for name in names if name is not None}

    def know(self, queue: str) -> None:
        """Lets the transfer workers know of a queue."""
        self.client.sadd(self.keys.queues, as_bytes(queue))

    def dead_letter_lists(self, queue: str) -> dict[str, int]:
        """Returns the lists of a dead letter queue, one a priority step, each with its length."""
        return {key: int(self.client.llen(key)) for key in self._ready(queue)}

    def dead_letter_page(self, key: str, skip: int = 0, count: int = 100) -> list[bytes]:
        """Reads messages from the end of a list of dead letters, the oldest first, after ``skip`` of them."""
        return [as_bytes(message) for message in reversed(self.client.lrange(key, -skip - count, -skip - 1))]

    @contextmanager
    def replaying(self, queue: str) -> Iterator[Callable[[], None]]:
        """Keeps others from going through a queue of dead letters, whose order is not the same meanwhile.

        Waits until they are through. Gives a function to be called at least every ``REPLAYING_TTL_S``: it keeps others
        away for as long again, and waits if one has come between all the same.
        """
        name = uuid4().hex

        def hold() -> None:
            args = [name, round(REPLAYING_TTL_S * 1000)]
            while as_text(self._run("lead", [self.keys.replaying(queue), self.keys.queues], args)[0]) != name:
                sleep(REPLAYING_POLL_S)

        hold()
        try:
            yield hold
        finally:
            self._run("release", [self.keys.replaying(queue)], [name])

    def replay(self, key: str, letters: Sequence[Letter]) -> int:
        """Takes dead letters from the end of their list, and does with each what it says.

        Args:
            key: The list.
            letters: The oldest ones, as they were read from it.

        Returns:
            Number of dead letters taken; fewer than given when another took some meanwhile.
        """
        ready = list(dict.fromkeys(self._list_of(letter) for letter in letters if letter.to == "queue"))
        args: list[str | bytes] = []
        for letter in letters:
            where = str(ready.index(self._list_of(letter))) if letter.to == "queue" else letter.to
            args += [letter.message, where, letter.body]
        return int(self._run("replay", [key, *ready], args))

    @in_each_form
    def _purge_other(self, queue: str) -> int:
        return sum(int(self._run("purge", self._stored(queue, each), [], each)) for each in self._forms[1:])

    def _list_of(self, letter: Letter) -> str:
        return self._ready(letter.queue)[self._list_of_priority[letter.priority]]
