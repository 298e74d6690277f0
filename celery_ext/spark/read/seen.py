"""Knows which messages a Spark task has read in one tier, so that it leaves them out in the next."""

from collections.abc import Iterable
from itertools import compress

from kombu_delayq.store import SparkStore
from kombu_delayq.store.hash_layout import may_be_duplicate, without_suffix
from kombu_delayq.store.types import Part, Scanned


class Seen:
    """The messages that were read, by id and due time. A message keeps both when it moves to the next tier."""

    def __init__(self) -> None:
        # Hashes take a third of the memory of ids, and two of some millions are hardly ever the same.
        self._keys: set[int] = set()

    def add(self, ids: Iterable[bytes], dues_ms: Iterable[float]) -> None:
        """Notes messages."""
        self._keys.update(map(hash, zip(ids, dues_ms, strict=True)))

    def new_of(self, store: SparkStore, part: Part, page: Scanned) -> Scanned:
        """Returns a page without the messages that were read before. Notes those of the journal.

        Args:
            store: Store of the broker.
            part: The part that has the page.
            page: The page.
        """
        if not page.members or not (self._keys or part.layout == "journal"):
            return page
        ids = map(_shared, store.scan.ids(part, page.members))
        keys = list(map(hash, zip(ids, map(float, page.dues), strict=True)))
        if part.layout == "journal":
            self._keys.update(keys)
            return page
        is_new = [key not in self._keys for key in keys]
        if all(is_new):
            return page
        return Scanned(
            list(compress(page.members, is_new)),
            list(compress(page.dues, is_new)),
            list(compress(page.lengths, is_new)),
            page.more,
        )


def _shared(stored_id: bytes) -> bytes:
    """Returns the id without the suffix that a message may get when it moves to where another has its id."""
    return without_suffix(stored_id) if may_be_duplicate(stored_id) else stored_id
