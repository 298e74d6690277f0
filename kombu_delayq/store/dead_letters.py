"""The store's operations on whole queues: purge, dead letters."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from uuid import uuid4

from redis.exceptions import NoPermissionError

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.client import Caller, in_each_form
from kombu_delayq.store.types import Letter

#: How long one may go through dead letters without a sign of life, and how often others ask whether it is done, in s.
REPLAYING_TTL_S, REPLAYING_POLL_S = 15.0, 0.1


class Upkeep(Caller):
    """Keeps queues in order. All calls are short, however much a queue holds."""

    _held_others: dict[str, float]

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue. Returns how many."""
        # Again at the end, because a conversion may move messages from either form to the other meanwhile.
        count = sum((self._purge_own(queue), self._purge_other(queue), self._purge_own(queue)))
        self._held_others.pop(queue, None)
        with suppress(NoPermissionError):  # then its name stays, as that of any queue that is empty
            self.forget([queue], 0.0)
        return count

    @in_each_form
    def forget(self, queues: Sequence[str], after_s: float, heard: Collection[str] = ()) -> list[str]:
        """Forgets queues without messages that have been unused for some time; one round trip.

        In use is a queue with a message, with a consumer (see ``keep_alive``), and one of whose new heads a JVM service
        hears. Of a queue that is seen for the first time, the time begins now.

        Args:
            queues: Names, about a hundred.
            after_s: How long they have to be unused in s; 0 if an empty queue is to be forgotten at once.
            heard: Those of whose new heads in Redisson's form the caller hears itself.

        Returns:
            Those that are forgotten.
        """
        keys, args = [self.keys.queues, self.keys.used], [str(after_s * 1000)]
        is_alone = "list" not in self._forms
        asks = after_s > 0 and not is_alone  # whether a JVM service hears of a queue
        for queue in queues:
            keys += [*self._stored(queue, "hash"), self._due(queue, "hash" if is_alone else "list")]
            args += [queue, self.keys.channel(queue) if asks else "", str(int(queue in heard))]
        return list(map(as_text, self._run("forget", keys, args, "hash")))

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
