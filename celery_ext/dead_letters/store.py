"""The store's operations on dead letters, which stand in ordinary queues of kombu."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import sleep
from typing import Literal, NamedTuple
from uuid import uuid4

from redis.exceptions import ResponseError

from celery_ext.dead_letters.keys import LetterKeys
from celery_ext.dead_letters.letter_list import LETTERS_PAGE, LetterList
from kombu_delayq.message import LetterRecord, ms_of, properties_of, read
from kombu_delayq.redis import Key, ListKey, Rows, checked, operation, wrong_type
from kombu_delayq.store import QueueRegistry, StoreClient, StorePart, lead, release, without_bodies
from kombu_delayq.text import as_bytes, as_text

#: A caller that gives no sign of life for ``REPLAYING_TTL_S`` loses its hold on a queue of dead letters. Other callers
#: ask every ``REPLAYING_POLL_S`` whether the queue is free. Both in s.
REPLAYING_TTL_S, REPLAYING_POLL_S = 15.0, 0.1
#: One call of ``prune`` reads so many letters of a list at once, and drops about so many of it at most.
PRUNE_PAGE, MOST_PRUNED = 100, 1000
#: How many of the latest letters of a list are searched for an id.
MOST_SEARCHED = 2_000


class Letter(NamedTuple):
    """A dead letter that leaves, and its goal.

    Attributes:
        message: The message as it is in the list of dead letters.
        to: ``queue`` to be consumed, or ``away`` to be deleted.
        queue: With ``queue``: name of that queue.
        priority: 0 to 9; selects the list of that queue.
        body: The message as it is pushed to that list.
    """

    message: bytes
    to: Literal["queue", "away"]
    queue: str = ""
    priority: int = 0
    body: bytes = b""

    def __repr__(self) -> str:
        return without_bodies(self)


@operation(once=True)
def replay(*, dead: ListKey, counts: Key, letters: Rows[tuple[int, bytes, str]]) -> list[int]: ...


class LetterStore(StorePart):
    """Reads queues of dead letters, and sends their messages on. All calls are short, however much a queue holds."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = LetterKeys(client.keys)

    def lists(self, queue: str) -> dict[str, int]:
        """Returns the lists of a dead letter queue, one for each priority step, with their lengths; one round trip."""
        keys = self._client.ready(queue)
        return dict(zip(keys, checked(self._client.replies([("LLEN", key) for key in keys])), strict=True))

    def latest(self, queues: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yields the latest ``MOST_SEARCHED`` letters of each queue and priority; nothing has an index of their ids.

        Args:
            queues: Names of queues of dead letters.

        Yields:
            The queue and the message. A queue that Redis does not let read, or whose node is away, is left out.
        """
        for queue in queues:
            with suppress(*self._client.pool.partial_errors):
                for key, length in self.lists(queue).items():
                    for page in LetterList(partial(self.page, key), max(length - MOST_SEARCHED, 0)).rest():
                        yield from ((queue, message) for message in page)

    def page(self, key: str, skip: int = 0, count: int = LETTERS_PAGE) -> list[bytes]:
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
        leases, ttl_ms = [self._own.replaying(queue)], round(REPLAYING_TTL_S * 1000)
        return self._client.run(lead(queues=self._keys.queues, leases=leases, name=name, ttl=ttl_ms))[0] == name

    def _release(self, queue: str, name: str) -> None:
        self._client.run(release(leases=[self._own.replaying(queue)], name=name))

    def replay(self, queue: str, key: str, letters: Mapping[int, Letter]) -> list[int]:
        """Takes dead letters out of their list and sends them to their goals. All others stay where they are.

        The goals are in other slots. So the letters are pushed first and leave their list after that. If the caller
        dies in between, they are sent twice. Letters that have left already are not pushed.

        Args:
            queue: Name of the queue of dead letters, in whose counters they are counted.
            key: One of its lists.
            letters: The letters, each by the number of letters that are older.

        Returns:
            The numbers of those that were taken.
        """
        letters = self._push(key, letters)
        newest_first = sorted(letters, reverse=True)
        counters = {older: "replay" if letter.to == "queue" else "drop" for older, letter in letters.items()}
        rows = [(older, letters[older].message, counters[older]) for older in newest_first]
        call = replay(dead=key, counts=self._keys.counts(queue), letters=rows)
        taken = self._client.run(call) if letters else []
        return sorted(older for older, is_taken in zip(newest_first, taken, strict=True) if is_taken)

    def _push(self, key: str, letters: Mapping[int, Letter]) -> Mapping[int, Letter]:
        """Pushes letters to their queues. Returns them without those that are not at their places in the list.

        Raises:
            ResponseError: A goal is no list. Nothing is pushed then, for each replay would send these letters again.
        """
        sent = {older: letter for older, letter in letters.items() if letter.to == "queue"}
        if not sent:
            return letters
        goals = list(dict.fromkeys(map(self._list_of, sent.values())))
        found = self._client.send(
            [*(("TYPE", goal) for goal in goals), *(("LINDEX", key, -1 - older) for older in sent)]
        )
        for goal, kind in zip(goals, map(as_text, found), strict=False):
            if kind not in ("none", "list"):
                raise ResponseError(wrong_type(goal, kind, "list"))
        left = {
            older
            for (older, letter), there in zip(sent.items(), found[len(goals) :], strict=True)
            if there is None or as_bytes(there) != letter.message
        }
        pushed = [letter for older, letter in sent.items() if older not in left]
        if pushed:
            self._client.send([("LPUSH", self._list_of(letter), letter.body) for letter in pushed], once=True)
        return {older: letter for older, letter in letters.items() if older not in left}

    def _list_of(self, letter: Letter) -> str:
        self._keys.check_queue(letter.queue)
        return self._client.ready(letter.queue)[self._client.list_of_priority[letter.priority]]


def buried_ms(raw: bytes) -> float | None:
    """Returns when a message was buried, ms since the epoch, by the clock of who did it; None for no dead letter."""
    at = LetterRecord.of(properties_of(read(raw))).at
    return None if at is None else ms_of(at)
