"""Dead letters of the store in memory, with which apps are tested."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from celery_ext.dead_letters.letter_list import LETTERS_PAGE
from celery_ext.dead_letters.store import Letter, LetterStore
from kombu_delayq.store import Waiting


class MemoryLetters:
    """The counterpart of those operations of ``LetterStore`` that an app uses.

    A queue is one list here, whatever the priorities, and its key is its name.

    Args:
        store: The ``MemoryStore``.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def lists(self, queue: str) -> dict[str, int]:
        """Returns the list of a queue with its length, as ``LetterStore.lists``."""
        return {queue: len(self._store.ready(queue))}

    def latest(self, queues: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yields all dead letters with their queues, as ``LetterStore.latest``."""
        for queue in queues:
            yield from ((queue, message) for message in self._store.ready(queue))

    def page(self, key: str, skip: int = 0, count: int = LETTERS_PAGE) -> list[bytes]:
        """Reads messages of a list, the oldest first, after ``skip`` of them."""
        return list(self._store.ready(key)[skip : skip + count])

    def replaying(self, queue: str) -> AbstractContextManager[Callable[[], None]]:
        """Holds nothing: a test is the only one that replays."""
        return nullcontext(lambda: None)

    def replay(self, queue: str, key: str, letters: Mapping[int, Letter]) -> list[int]:
        """Takes dead letters from their list and sends them to their goals, as ``LetterStore.replay``."""
        taken = [older for older, letter in letters.items() if self._store.take(queue, letter.message)]
        for letter in map(letters.__getitem__, taken):
            if letter.to == "queue":
                self._store.push(Waiting(letter.queue, "", 0.0, letter.priority, letter.body))
        return taken


#: Counterparts of this feature's parts of a store, by their classes.
PARTS = {LetterStore: MemoryLetters}
