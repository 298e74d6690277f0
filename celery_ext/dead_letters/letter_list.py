"""Reads a list of dead letters page by page, while letters leave and come."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b

#: Most letters that are read in one call, and about the most bytes.
LETTERS_PAGE, PAGE_BYTES = 100, 1_000_000
#: How many of the latest letters of a list are searched for the letter of a cursor.
MOST_LOOKED = 10_000


class LetterList:
    """Reads a list of dead letters, the oldest first, a page at a time, and passes over none when others leave.

    It remembers the letters that it has passed by, and goes on behind the newest of these that is still there.

    Args:
        page: Reads so many letters, after so many older ones.
        at: How many of the oldest are left out.

    Attributes:
        at: How many letters are older than the next one.
    """

    def __init__(self, page: Callable[[int, int], list[bytes]], at: int = 0) -> None:
        self._page, self.at = page, at
        self._passed: dict[str, None] = {}  # digests, the newest last
        self._overlap = 1  # a page is read from the last of these on, which is looked at again

    def begin(self, position: int, digest: str) -> None:
        """Begins with the letter of a digest, which was at a position; if it has left, with the oldest letter."""
        self.at, self._passed, self._overlap = position, {digest: None}, 0

    def read(self, count: int) -> list[bytes]:
        """Returns the next letters; fewer than ``count`` at the end of the list."""
        while self._passed:
            page = self._page(self.at - self._overlap, count + self._overlap)
            if page and digest_of(page[0]) == next(reversed(self._passed)):
                return page[self._overlap :]
            self._find()
        return self._page(self.at, count)

    def rest(self, most: int = LETTERS_PAGE) -> Iterator[list[bytes]]:
        """Yields the next letters page by page, each before it goes on behind it; at most so many in a page."""
        count = min(most, LETTERS_PAGE)
        while page := self.read(count):
            yield page
            self.pass_by(page)
            if len(page) < count:
                return
            count = min(most, next_count(page))

    def pass_by(self, letters: Iterable[bytes]) -> None:
        """Goes on behind letters: the next ones, but for those that the caller has taken out."""
        passed = [*map(digest_of, letters)]
        self.at, self._overlap = self.at + len(passed), 1
        self._passed.update(dict.fromkeys(passed))

    def _find(self) -> None:
        """Goes to the newest letter that was passed and is still there, which is before its old place, or to the start.

        The letter of a cursor is sought among ``MOST_LOOKED``: anybody may send a cursor.
        """
        at, count = self.at - self._overlap + 1, LETTERS_PAGE
        end = 0 if self._overlap else max(at - MOST_LOOKED, 0)
        while at > end:
            count = min(count, at - end)
            at -= count
            page = self._page(at, count)
            for position, letter in reversed([*enumerate(page, at)]):
                if (digest := digest_of(letter)) in self._passed:
                    while next(reversed(self._passed)) != digest:
                        self._passed.popitem()
                    self.at = position + self._overlap
                    return
            count = next_count(page) if page else LETTERS_PAGE
        self.at = 0
        self._passed.clear()


def digest_of(message: bytes) -> str:
    """Returns what tells one dead letter from all others."""
    return blake2b(message, digest_size=8).hexdigest()


def next_count(page: Sequence[bytes]) -> int:
    """Returns how many dead letters to read next, by the size of those of the last page."""
    size = sum(map(len, page)) // len(page)
    return max(1, min(LETTERS_PAGE, PAGE_BYTES // max(size, 1)))
