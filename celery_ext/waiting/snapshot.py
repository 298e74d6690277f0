"""Which messages a filter matched at a moment: 8 bytes for each, however long their ids are."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from math import inf
from secrets import token_bytes
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.search import Done, Progress, Skipped, search
from celery_ext.waiting.selection import Selection
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store import WaitingStore
from kombu_delayq.store.types import JOURNAL, Part, QueueForm, Scanned

#: How many messages one call reads without their bodies, by layout: in list layout the index has the bodies.
IDS_A_CALL = {"hash": 500, "redisson": 250, JOURNAL: 500}


class Slot(NamedTuple):
    """Where a snapshot has a message."""

    bucket: int
    at: int


class Snapshot:
    """The messages that a filter matched at a moment, by hashes of queue and id; and which of them are done with.

    The hashes have a secret key, so that nobody can make up an id that has the hash of another.

    Attributes:
        selection: The filter.
        as_of_ms: When the filter had been applied to all messages, ms since the epoch, by Redis's clock. A message that
            came later is not in the snapshot. One that came while the messages were read may be.
        latest_ms: The latest due time, ms since the epoch; ``-inf`` without messages.
        queues: Names of the queues that messages in it waited for.
        skipped: Queues that could not be read.
        unreadable: How many messages may match or not, because their arguments cannot be read. They are not in it.
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.as_of_ms, self.latest_ms = 0.0, -inf
        self.queues: set[str] = set()
        self.skipped: list[Skipped] = []
        self.unreadable = 0
        self._key = token_bytes(16)
        # In 256 parts by the first byte, because to sort one array of all needs much more memory than the array.
        self._hashes = [array("Q") for _ in range(256)]
        self._is_done: list[bytearray] = []
        self._hasher: tuple[str, Any] = ("", None)
        self._left = 0

    def __len__(self) -> int:
        return sum(map(len, self._hashes))

    @property
    def left(self) -> int:
        """How many messages are not done with."""
        return self._left

    def add(self, queue: str, identity: str | bytes, due_ms: float) -> None:
        """Adds a message."""
        hashed = self._hash(queue, identity)
        self._hashes[hashed >> 56].append(hashed)
        self.queues.add(queue)
        self.latest_ms = max(self.latest_ms, due_ms)

    def close(self, as_of_ms: float) -> None:
        """Sorts the hashes when all messages are added. A message that was added twice counts once."""
        self._hashes = [array("Q", sorted(set(hashes))) for hashes in self._hashes]
        self._is_done = [bytearray(len(hashes)) for hashes in self._hashes]
        self.as_of_ms, self._left = as_of_ms, len(self)

    def find(self, queue: str, identity: str | bytes) -> Slot | None:
        """Returns where a message is; None if it is not here, or is done with."""
        hashed = self._hash(queue, identity)
        bucket = hashed >> 56
        hashes = self._hashes[bucket]
        at = bisect_left(hashes, hashed)
        is_here = at < len(hashes) and hashes[at] == hashed and not self._is_done[bucket][at]
        return Slot(bucket, at) if is_here else None

    def finish(self, slot: Slot) -> bool:
        """Notes that a message is done with. Returns False if it was already."""
        is_new = not self._is_done[slot.bucket][slot.at]
        self._left -= is_new
        self._is_done[slot.bucket][slot.at] = 1
        return is_new

    def _hash(self, queue: str, identity: str | bytes) -> int:
        name, hasher = self._hasher
        if hasher is None or name != queue:
            hasher = blake2b(as_bytes(queue) + b"\0", digest_size=8, key=self._key)
            self._hasher = (queue, hasher)
        hasher = hasher.copy()
        hasher.update(as_bytes(identity))
        return int.from_bytes(hasher.digest())


def take(
    store: WaitingStore,
    selection: Selection,
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Snapshot | None:
    """Notes which messages a filter matches. It reads bodies only if the filter needs them.

    In Redisson's layout and in the journal, messages that share a custom id count as one.

    Args:
        store: The broker's store.
        selection: The filter.
        progress: Called after each page.
        stop: Whether to give up; it is asked before each page.

    Returns:
        The snapshot; None if it was stopped.
    """
    snapshot = Snapshot(selection)
    if not (_add_matches if selection.reads_bodies else _add_all)(store, snapshot, progress, stop):
        return None
    snapshot.close(store.now_ms())
    return snapshot


def _add_matches(
    store: WaitingStore, snapshot: Snapshot, progress: Callable[[Progress], object], stop: Callable[[], bool]
) -> bool:
    for event in search(store, snapshot.selection, stop=stop):
        match event:
            case DelayedTask(message=message):
                snapshot.add(message.queue, message.id, message.due_ms)
            case Skipped():
                snapshot.skipped.append(event)
            case Progress():
                snapshot.unreadable = event.unreadable
                progress(event)
            case Done(cursor=cursor):
                return cursor is None
    return False


def _add_all(
    store: WaitingStore, snapshot: Snapshot, progress: Callable[[Progress], object], stop: Callable[[], bool]
) -> bool:
    forms, snapshot.skipped = forms_of(store, snapshot.selection)
    looked, of = 0, sum(forms.values())
    for form in forms:
        try:
            for page in pages(store, form, snapshot.selection):
                if stop():
                    return False
                for identity, due, _ in page:
                    snapshot.add(form.queue, identity, due)
                looked += len(page)
                progress(Progress(looked, max(of, looked)))
        except ResponseError as error:
            snapshot.skipped.append(Skipped(form.queue, str(error)))
    return True


def forms_of(store: WaitingStore, selection: Selection) -> tuple[dict[QueueForm, int], list[Skipped]]:
    """Counts the messages in the queues and the range of a filter, by queue and form; and names unreadable queues."""
    sizes, skipped = dict[QueueForm, int](), list[Skipped]()
    for queue in store.queues.names() if selection.queues is None else selection.queues:
        try:
            sizes |= store.scan.sizes([queue], selection.from_ms, selection.to_ms)
        except ResponseError as error:  # such as for a key of another type
            skipped.append(Skipped(queue, str(error)))
    # The journal first: a message that is promoted meanwhile is found in Redis then.
    forms = sorted(sizes, key=lambda form: form.layout != JOURNAL)
    return {form: sizes[form] for form in forms if sizes[form]}, skipped


def pages(store: WaitingStore, form: QueueForm, selection: Selection) -> Iterator[Sequence[tuple[str, float, int]]]:
    """Yields id, due time in ms, and stored bytes of the messages in the range of a filter, a page at a time."""
    part, read = Part(form.queue, layout=form.layout), None
    while read is None or read.more:
        read = store.scan.scan(part, read, selection.from_ms, selection.to_ms, IDS_A_CALL[form.layout])
        yield _rows_of(store, part, read)


def _rows_of(store: WaitingStore, part: Part, read: Scanned) -> list[tuple[str, float, int]]:
    ids = store.scan.ids(part, read.members) if read.members else []
    return list(zip(map(as_text, ids), map(float, read.dues), read.lengths, strict=True))
