"""The store's operations on whole queues: purge, dead letters."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep
from uuid import uuid4

from redis.exceptions import ResponseError

from kombu_delayq.calls import Caller, as_bytes, as_text, in_each_form
from kombu_delayq.results import Letter

#: How long one may go through dead letters without a sign of life, and how often others ask whether it is done, in s.
REPLAYING_TTL_S, REPLAYING_POLL_S = 15.0, 0.1


class Upkeep(Caller):
    """Keeps queues in order. All calls are short, however much a queue holds."""

    _held_others: set[str]

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue. Returns how many."""
        # First, so that a message offered meanwhile, which finds the queue empty, is the one to be told last.
        self.ask("SREM", self.keys.queues, queue)
        self._held_others.discard(queue)
        try:
            # Again at the end, because a conversion may move messages from either form to the other meanwhile.
            return sum((self._purge_own(queue), self._purge_other(queue), self._purge_own(queue)))
        except ResponseError:
            self.ask("SADD", self.keys.queues, queue)  # what it holds must still be transferred
            raise

    def dead_letter_lists(self, queue: str) -> dict[str, int]:
        """Returns the lists of a dead letter queue, one a priority step, each with its length."""
        return {key: int(self.ask("LLEN", key)) for key in self.ready(queue)}

    def dead_letter_page(self, key: str, skip: int = 0, count: int = 100) -> list[bytes]:
        """Reads messages from the end of a list of dead letters, the oldest first, after ``skip`` of them."""
        return [as_bytes(message) for message in reversed(self.ask("LRANGE", key, -skip - count, -skip - 1))]

    @contextmanager
    def replaying(self, queue: str) -> Iterator[Callable[[], None]]:
        """Keeps others from going through a queue of dead letters, whose order is not the same meanwhile.

        Waits until they are through. Gives a function to be called at least every ``REPLAYING_TTL_S``: it keeps others
        away for as long again, and waits if one has come between all the same.
        """
        name = uuid4().hex

        def hold() -> None:
            args = [name, round(REPLAYING_TTL_S * 1000)]
            while as_text(self._run("lead", [self.keys.queues, self.keys.replaying(queue)], args)[0]) != name:
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

    def _purge_own(self, queue: str) -> int:
        return int(self._run("purge", self._stored(queue), []))

    @in_each_form
    def _purge_other(self, queue: str) -> int:
        return sum(int(self._run("purge", self._stored(queue, each), [], each)) for each in self._forms[1:])

    def _list_of(self, letter: Letter) -> str:
        return self.ready(letter.queue)[self._list_of_priority[letter.priority]]
