"""Takes a snapshot of the messages that are meant, and cancels, reschedules or runs them."""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, inf, isfinite
from secrets import token_bytes
from typing import TYPE_CHECKING, Literal, NamedTuple

from redis.exceptions import ResponseError

from celery_ext.waiting import by_id
from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.search import Done, Progress, Skipped, search_tasks, sizes_of
from celery_ext.waiting.selection import Selection
from kombu_delayq.audit import audited
from kombu_delayq.errors import DelayTooLong, quoted
from kombu_delayq.message import iso_of
from kombu_delayq.store import LAYOUT_OF, MAX_BYTES, DelayedQueue, Part, Scanned, Waiting, is_step
from kombu_delayq.text import as_bytes, as_text

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore


class SnapshotPlace(NamedTuple):
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

    def find(self, queue: str, identity: str | bytes) -> SnapshotPlace | None:
        """Returns where a message is; None if it is not here, or is done with."""
        hashed = self._hash(queue, identity)
        bucket = hashed >> 56
        hashes = self._hashes[bucket]
        at = bisect_left(hashes, hashed)
        is_here = at < len(hashes) and hashes[at] == hashed and not self._is_done[bucket][at]
        return SnapshotPlace(bucket, at) if is_here else None

    def finish(self, place: SnapshotPlace) -> bool:
        """Notes that a message is done with. Returns False if it was already."""
        is_new = not self._is_done[place.bucket][place.at]
        self._left -= is_new
        self._is_done[place.bucket][place.at] = 1
        return is_new

    def _hash(self, queue: str, identity: str | bytes) -> int:
        name = b"%b\0%b" % (as_bytes(queue), as_bytes(identity))
        return int.from_bytes(blake2b(name, digest_size=8, key=self._key).digest())


def take_snapshot(
    store: "DelayStore",
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
    store: "DelayStore", snapshot: Snapshot, progress: Callable[[Progress], object], stop: Callable[[], bool]
) -> bool:
    for event in search_tasks(store, snapshot.selection, stop=stop):
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
    store: "DelayStore", snapshot: Snapshot, progress: Callable[[Progress], object], stop: Callable[[], bool]
) -> bool:
    sizes, snapshot.skipped = sizes_of(store, snapshot.selection)
    looked, of = 0, sum(sizes.values())
    for delayed in sizes:
        try:
            for page in pages(store, delayed, snapshot.selection):
                if stop():
                    return False
                for identity, due, _ in page:
                    snapshot.add(delayed.queue, identity, due)
                looked += len(page)
                progress(Progress(looked, max(of, looked)))
        except ResponseError as error:
            snapshot.skipped.append(Skipped(delayed.queue, str(error)))
    return True


def pages(
    store: "DelayStore", delayed: DelayedQueue, selection: Selection
) -> Iterator[Sequence[tuple[str, float, int]]]:
    """Yields id, due time in ms, and stored bytes of the messages in the range of a filter, a page at a time."""
    part, read = Part(delayed.queue, layout=delayed.layout), None
    while read is None or read.more:
        read = store.scan.scan(part, read, selection.from_ms, selection.to_ms, LAYOUT_OF[delayed.layout].read_a_call)
        yield _rows_of(store, part, read)


def _rows_of(store: "DelayStore", part: Part, read: Scanned) -> list[tuple[str, float, int]]:
    ids = store.scan.ids(part, read.members) if read.members else []
    return list(zip(map(as_text, ids), map(float, read.dues), read.lengths, strict=True))


ActionName = Literal["cancel", "reschedule", "run_now"]

#: What became of a message: ``cancelled``, ``rescheduled``, ``transferred`` (it is in its queue now), ``unreadable``
#: (it cannot be rewritten), ``too_long`` (its new time is farther away than ``max_delay`` allows),
#: ``gone`` (it no longer waited, or no longer matched: somebody else has changed it, it came due, or it lost its body).
BulkOutcome = Literal["cancelled", "rescheduled", "transferred", "unreadable", "too_long", "gone"]

#: How often it looks for messages that another client has changed while they were read.
TRIES = 3
#: How often it goes through the range: once more for messages that have moved to a due time it was past.
PASSES = 2


@dataclass(frozen=True)
class BulkAction:
    """What to do with each message.

    Attributes:
        name: ``cancel``, ``reschedule`` or ``run_now``.
        due_ms: For ``reschedule``: the new due time of all messages, ms since the epoch.
        shift_s: Instead: by how many s each message is to be due later; earlier if it is negative.

    Raises:
        ValueError: One of them is missing, too much, or no number.
    """

    name: ActionName
    due_ms: float | None = None
    shift_s: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("cancel", "reschedule", "run_now"):
            raise ValueError(f"{quoted(self.name)} is no action; cancel, reschedule and run_now are")
        given = [value for value in (self.due_ms, self.shift_s) if value is not None]
        if len(given) != (self.name == "reschedule"):
            raise ValueError(
                "reschedule takes either a new time or a shift"
                if self.name == "reschedule"
                else f"{self.name} takes no time"
            )
        for value in given:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
                raise ValueError(f"{quoted(value)} is no time to reschedule to or by")

    def times(self) -> dict[str, str | float | None]:
        """Returns what is given of the new time as JSON values: ``due`` in ISO 8601, or ``shift_s``."""
        given = {"due": None if self.due_ms is None else iso_of(self.due_ms), "shift_s": self.shift_s}
        return {name: value for name, value in given.items() if value is not None}

    def due_of(self, message: Waiting) -> float:
        """Returns when a message is to be due, ms since the epoch."""
        return message.due_ms + (self.shift_s or 0) * 1000 if self.due_ms is None else self.due_ms


class _Found(NamedTuple):
    place: SnapshotPlace
    #: The id under which the snapshot has it.
    identity: str
    message: Waiting


class Bulk:
    """An action on the messages of a snapshot that still wait and still match. Messages that came later stay.

    Args:
        snapshot: The messages.
        action: What to do.

    Attributes:
        outcomes: How many messages each outcome had so far. ``gone`` is counted at the end.
        of: How many messages there are. It grows when several are found under one entry of the snapshot: with one
            custom id, in the journal or in Redisson's layout. It acts on all of these that match.
    """

    def __init__(self, snapshot: Snapshot, action: BulkAction) -> None:
        self.outcomes: Counter[BulkOutcome] = Counter()
        self.of = len(snapshot)
        self._snapshot, self._action = snapshot, action
        self._intended: dict[SnapshotPlace, set[float]] = {}
        self._unread: dict[str, str] = {}

    @property
    def action(self) -> BulkAction:
        """What it does."""
        return self._action

    @property
    def selection(self) -> Selection:
        """Which messages it does it to."""
        return self._snapshot.selection

    @property
    def done(self) -> int:
        """How many messages have an outcome."""
        return self.outcomes.total()

    def run(
        self,
        store: "DelayStore",
        *,
        progress: Callable[[int, int], object] = lambda done, of: None,
        stop: Callable[[], bool] = lambda: False,
        announce: Callable[[list[Waiting]], object] = lambda messages: None,
    ) -> bool:
        """Acts on all messages that have no outcome yet. After a stop or an error it may be called again.

        Args:
            store: The broker's store.
            progress: Called with ``done`` and ``of`` after each call that changes messages, and at the end.
            stop: Whether to stop; it is asked before each call of Redis.
            announce: Called with the messages that a call has cancelled.

        Returns:
            Whether it has come to its end; False if it was stopped.

        Raises:
            DelayTooLong: The latest message would be due later than the transport option ``max_delay`` allows.
            AnswerLost: Redis did not answer. Messages that it has changed nevertheless are ``gone`` when this goes on,
                and no message is shifted twice.
            redis.exceptions.ResponseError: Messages are left in a queue that cannot be read any more, such as for a
                right that the user has lost.
        """
        self._check_delay(store)
        self._unread.clear()
        for _ in range(PASSES):
            for delayed, ids in self._parts(store):
                if stop():
                    return False
                self._act_on(store, delayed, ids, announce)
                progress(self.done, self.of)
            if not self._snapshot.left:
                break
        if stop() and self._snapshot.left:
            return False
        if self._snapshot.left and self._unread:
            raise ResponseError("; ".join(f"queue {queue!r}: {error}" for queue, error in self._unread.items()))
        if self.done < self.of:
            self.outcomes["gone"] += self.of - self.done
        progress(self.done, self.of)
        return True

    def _check_delay(self, store: "DelayStore") -> None:
        if self._action.name == "reschedule" and self.of:
            latest_ms = self._snapshot.latest_ms + (self._action.shift_s or 0) * 1000
            due_ms = latest_ms if self._action.due_ms is None else self._action.due_ms
            store.options.check_delay((due_ms - store.now_ms()) / 1000)

    def _parts(self, store: "DelayStore") -> Iterator[tuple[DelayedQueue, list[str]]]:
        """Yields ids of messages to act on, a queue's at a time, and none after each page, so that it can stop.

        Ids of several pages come together: where few of many messages are meant, a page has few of them.
        """
        selection = self._snapshot.selection
        sizes, skipped = sizes_of(store, selection)
        for queue, error in skipped:
            self._note_unread(queue, error)
        for delayed in sizes:
            reading = pages(store, delayed, selection)
            ids, size = list[str](), 0
            while self._snapshot.left:
                try:
                    rows = next(reading, None)
                except ResponseError as error:
                    self._note_unread(delayed.queue, str(error))
                    break
                if rows is None:
                    break
                for identity, _, length in rows:
                    if self._snapshot.find(delayed.queue, identity) is None:
                        continue
                    if ids and (len(ids) >= LAYOUT_OF[delayed.layout].changes_a_call or size + length > MAX_BYTES):
                        yield delayed, ids
                        ids, size = [], 0
                    ids.append(identity)
                    size += length
                yield delayed, []
            yield delayed, ids

    def _note_unread(self, queue: str, error: str) -> None:
        """Notes that messages of a queue cannot be read. Those of a key that has another type now are gone."""
        if queue in self._snapshot.queues and "WRONGTYPE" not in error:
            self._unread[queue] = error

    def _act_on(
        self,
        store: "DelayStore",
        delayed: DelayedQueue,
        ids: Sequence[str],
        announce: Callable[[list[Waiting]], object],
    ) -> None:
        left = list(dict.fromkeys(ids))
        for _ in range(TRIES):
            if not left:
                return
            found = self._found(store, delayed.queue, left)
            words = self._change(store, delayed.queue, found) if found else []
            again, cancelled = list[_Found](), []
            for one, word in zip(found, words, strict=True):
                if word in ("changed", "not_delayed"):
                    again.append(one)
                    continue
                self._finish(one.place, word)  # type: ignore[arg-type]  # the words of the Lua scripts
                if word == "cancelled":
                    cancelled.append(one.message)
            if cancelled:
                announce(cancelled)
            left = self._left_of(delayed.queue, again)

    def _left_of(self, queue: str, again: Sequence[_Found]) -> list[str]:
        """Returns ids to look at once more. A message that shares its id with one that is done with is gone."""
        left = dict[str, None]()
        for one in again:
            if self._snapshot.find(queue, one.identity) is None:
                self.of += 1
            else:
                left[one.identity] = None
        return list(left)

    def _found(self, store: "DelayStore", queue: str, ids: Sequence[str]) -> list[_Found]:
        """Reads those messages of some ids that are in the snapshot, have no outcome, and match."""
        found = list[_Found]()
        for identity, messages in store.lookup.get([queue], ids).items():
            place = self._snapshot.find(queue, identity)
            if place is None:
                continue
            intended = self._intended.get(place, ())
            for one in messages:
                # In the default layout each message has an id of its own in the snapshot.
                is_other = one.layout == "hash" and one.id != identity
                if is_other or not self._snapshot.selection.matches(DelayedTask(one)):
                    continue
                if one.due_ms in intended:
                    # The answer to an earlier call was lost, and the message is where that call was to move it.
                    self._finish(place, "rescheduled")
                else:
                    found.append(_Found(place, identity, one))
        return found

    def _change(self, store: "DelayStore", queue: str, found: Sequence[_Found]) -> list[str]:
        """Acts on messages of one queue. Returns a word for each."""
        if self._action.name == "cancel":
            messages = [one.message for one in found]
            with by_id.naming_ids("cancelled", [message.id for message in messages]):
                return store.lookup.discard(
                    queue, [(one, DelayedTask(one).id if is_step(one) else "") for one in messages]
                )
        now_ms, runs_now = store.now_ms(), self._action.name == "run_now"
        words, dues = ["too_long"] * len(found), dict[int, float]()
        for at, (place, _, message) in enumerate(found):
            due_ms = now_ms if runs_now else self._action.due_of(message)
            with suppress(DelayTooLong):
                store.options.check_delay((due_ms - now_ms) / 1000)
                dues[at] = due_ms
                if self._action.shift_s is not None:
                    self._intended.setdefault(place, set()).update((due_ms, ceil(due_ms)))
        messages = [found[at].message for at in dues]
        done = by_id.change(store, queue, messages, dues.values(), runs_now=runs_now)
        for at, word in zip(dues, done, strict=True):
            words[at] = word
        return words

    def _finish(self, place: SnapshotPlace, outcome: BulkOutcome) -> None:
        self.of += not self._snapshot.finish(place)
        self._intended.pop(place, None)
        self.outcomes[outcome] += 1


@contextmanager
def audited_bulk(bulk: Bulk, who: str | None = None) -> Iterator[None]:
    """Logs in the audit what a bulk action has changed, also if it fails half way; see ``audited``."""
    what = {"filter": bulk.selection.as_json(), "of": bulk.of, **bulk.action.times()}
    with audited(f"bulk {bulk.action.name}", what, who=who, of=bulk.of) as counts:
        try:
            yield
        finally:
            counts.update(bulk.outcomes)
