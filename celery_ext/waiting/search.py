"""Searches the waiting messages of a broker, in the order of their due times. Knows the store, and no app.

A search is no snapshot: it may or may not find a message that comes or goes meanwhile. It finds a message that waits
all the time once. A cursor is the place where a search goes on.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from hashlib import blake2b
from heapq import merge
from math import inf, isnan, nextafter
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from redis.exceptions import ResponseError

from celery_ext.waiting.delayed_task import DelayedTask
from celery_ext.waiting.selection import Selection
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import BESIDE, DelayedQueue, Page, Waiting
from kombu_delayq.text import as_text

if TYPE_CHECKING:
    from kombu_delayq.store import DelayStore

#: All layouts, by their numbers in cursors.
ALL_LAYOUTS = (*LAYOUTS, BESIDE)
#: Longest text of a cursor, in characters.
LONGEST_CURSOR = 6000
#: How much of a message's index member a cursor has at most, in bytes: an id may be very long.
_LONGEST_PLACE = 600
_CHECK = 6
#: Sorts behind every member of the same due time.
_BEHIND_ALL = b"\xff" * 17


class Position(NamedTuple):
    """A message in the order of a listing: by due time, queue, layout (the store's own first), and member.

    Attributes:
        due: Its due time, as Redis writes it.
        queue: Its queue.
        layout: The layout in which it is kept.
        place: Its index member, or a stand-in that sorts like it.
    """

    due: bytes
    queue: str
    layout: str
    place: bytes

    @property
    def due_ms(self) -> float:
        """Its due time, ms since the epoch."""
        return float(self.due)

    def start(self, queue: str, own: str) -> tuple[Page | None, float]:
        """Returns where the messages behind this one begin in a queue, as ``browse`` takes it.

        Args:
            queue: Any queue.
            own: The store's own layout.

        Returns:
            The page before, or None, and the least due time in ms.
        """
        if queue != self.queue:
            return None, self.due_ms if queue > self.queue else nextafter(self.due_ms, inf)
        order = sorted(ALL_LAYOUTS, key=lambda layout: layout != own)  # stable
        ends = dict.fromkeys(order[: order.index(self.layout)], (_BEHIND_ALL, self.due))
        return Page([], True, {**ends, self.layout: (self.place, self.due)}), self.due_ms


#: Before all messages.
BEGINNING = Position(b"-inf", "", LAYOUTS[0], b"")


def cursor_of(position: Position, selection: Selection) -> str:
    """Returns a position in what a filter selects as a text that a URL can have as it is."""
    place = position.place
    if len(place) > _LONGEST_PLACE:  # it skips messages with the same due time and the same beginning of their ids
        place = place[:_LONGEST_PLACE] + _BEHIND_ALL
    fields = [position.due.decode(), position.queue, ALL_LAYOUTS.index(position.layout), place.decode("latin-1")]
    raw = json.dumps(fields, separators=(",", ":")).encode()
    return urlsafe_b64encode(_check(raw, selection) + raw).rstrip(b"=").decode()


def read_cursor(text: str, selection: Selection) -> Position:
    """Returns the position in a text of ``cursor_of`` for a filter of the same queues, task, arguments and priority.

    Raises:
        ValueError: The text is no such text.
    """
    try:
        if len(text) > LONGEST_CURSOR:
            raise ValueError
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if _check(raw[_CHECK:], selection) != raw[:_CHECK]:
            raise ValueError
        due, queue, number, place = json.loads(raw[_CHECK:])
        position = Position(due.encode("ascii"), as_text(queue), ALL_LAYOUTS[number], place.encode("latin-1"))
        if isnan(position.due_ms) or number < 0:
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("the cursor is damaged or belongs to another filter: begin again without it") from None
    return position


def _check(raw: bytes, selection: Selection) -> bytes:
    """Returns a check of a position. The range does not count: the end of "the next hour" moves from page to page."""
    arguments: list[object] = [[str(one) for one in selection.arguments]] if selection.arguments else []
    arguments += ["retried"] if selection.retried else []
    filtered = json.dumps([selection.queues, selection.task, selection.q, selection.priority, *arguments]).encode()
    key = blake2b(filtered, digest_size=32).digest()
    return blake2b(raw, digest_size=_CHECK, key=key).digest()


#: How many messages one call reads at most. The store bounds the bytes, too, so that Redis is busy for about 1 ms.
MOST_A_CALL, LEAST_A_CALL = 100, 10
#: About how many messages are kept in memory, over all queues.
KEPT = 2_000
#: How often a search tells its progress, in s.
EVERY_S = 0.25
#: For how long a page is looked for, in s.
PAGE_S = 2.0


class Progress(NamedTuple):
    """How far a search is.

    Attributes:
        looked: How many messages were looked at.
        of: How many there were between where the search began and the end of its range.
        unreadable: How many may match or not, because their arguments cannot be read. They were not found.
    """

    looked: int
    of: int
    unreadable: int = 0


class Skipped(NamedTuple):
    """A queue that cannot be read, such as for a key of another type. The search goes on without it.

    Attributes:
        queue: Its name.
        error: Why.
    """

    queue: str
    error: str


class Done(NamedTuple):
    """The end of a search, which is its last event.

    Attributes:
        cursor: Where another search goes on; None if this one has come to the end of its range.
    """

    cursor: str | None


class TaskPage(NamedTuple):
    """Some messages for a table.

    Attributes:
        tasks: The messages, the next due first.
        cursor: Where the next page begins; None if there is none.
        progress: How many messages were looked at for this page, and how many there are from its beginning on.
        skipped: Queues that cannot be read.
    """

    tasks: list[DelayedTask]
    cursor: str | None
    progress: Progress
    skipped: list[Skipped]


def search_tasks(
    store: "DelayStore",
    selection: Selection,
    cursor: str | None = None,
    *,
    limit: int | None = None,
    for_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[DelayedTask | Progress | Skipped | Done]:
    """Yields the messages that match, the next due first, and how far the search is; last of all a ``Done``.

    Args:
        store: The broker's store.
        selection: Which messages.
        cursor: Where an earlier search ended.
        limit: Most messages to find.
        for_s: The search ends this time in s after it has found the first message of each queue.
        stop: The search ends when this returns True. It is asked before each call of Redis, and between messages.

    Raises:
        ValueError: The cursor is damaged, or belongs to another filter.
    """
    position = None if cursor is None else read_cursor(cursor, selection)
    return _search(store, selection, position, limit, for_s, stop)


def search_page(
    store: "DelayStore", selection: Selection, cursor: str | None = None, limit: int = 50, for_s: float = PAGE_S
) -> TaskPage:
    """Returns the next messages that match.

    Args:
        store: The broker's store.
        selection: Which messages.
        cursor: Where the page before ends.
        limit: Most messages of the page.
        for_s: The page has fewer messages, and a cursor, if no more were found in this time in s, as of
            ``search_tasks``.

    Raises:
        ValueError: The cursor is damaged, or belongs to another filter.
    """
    tasks, skipped, progress, end = [], [], Progress(0, 0), Done(None)
    for event in search_tasks(store, selection, cursor, limit=limit, for_s=for_s):
        match event:
            case DelayedTask():
                tasks.append(event)
            case Skipped():
                skipped.append(event)
            case Progress():
                progress = event
            case Done():
                end = event
    return TaskPage(tasks, end.cursor, progress, skipped)


def _search(
    store: "DelayStore",
    selection: Selection,
    position: Position | None,
    limit: int | None,
    for_s: float | None,
    stop: Callable[[], bool],
) -> Iterator[DelayedTask | Progress | Skipped | Done]:
    from_ms = selection.from_ms if position is None else max(selection.from_ms, position.due_ms)
    sizes, skipped = sizes_of(store, selection, from_ms)
    yield from skipped
    queues = sorted({delayed.queue for delayed in sizes})
    of, looked, found, unreadable = sum(sizes.values()), 0, 0, 0
    most, kept = (MOST_A_CALL, KEPT) if limit is None or selection.reads_bodies else (limit + 1, 2 * (limit + 1))
    count = max(min(kept // max(len(queues), 1), most, MOST_A_CALL), LEAST_A_CALL)
    # By queue where due times are the same.
    rows = merge(*(_rows(store, queue, selection, position, count) for queue in queues), key=_due_ms)
    here = position or BEGINNING
    end: Position | None = None
    began = told = inf
    for row in rows:
        if isinstance(row, Skipped):
            yield row
            continue
        now = monotonic()
        if not looked:  # before, the first message of each queue had to be read
            began = told = now
        if found == limit or stop() or (for_s is not None and looked and now - began >= for_s):
            end = here
            break
        here = row.position
        looked += 1
        task = DelayedTask(row.message)
        if selection.accepts(task):
            found += 1
            yield task
        elif selection.cannot_read(task):
            unreadable += 1
        if now - told >= EVERY_S:
            told = now
            yield Progress(looked, max(of, looked), unreadable)
    yield Progress(looked, max(of, looked), unreadable)
    yield Done(None if end is None else cursor_of(end, selection))


def sizes_of(
    store: "DelayStore", selection: Selection, from_ms: float = -inf
) -> tuple[dict[DelayedQueue, int], list[Skipped]]:
    """Counts the messages in the queues and the range of a filter, by queue and layout; and names unreadable queues.

    Args:
        store: The broker's store.
        selection: The filter.
        from_ms: Least due time, ms since the epoch, where that is later than the filter's.
    """
    queues = store.queues.names() if selection.queues is None else selection.queues
    bounds = max(selection.from_ms, from_ms), selection.to_ms
    found, skipped = dict[DelayedQueue, int](), list[Skipped]()
    try:
        found = store.scan.sizes(queues, *bounds)
    except ResponseError:  # such as for a key of another type
        for queue in queues:
            try:
                found |= store.scan.sizes([queue], *bounds)
            except ResponseError as error:
                skipped.append(Skipped(queue, str(error)))
    # The journal first: a message that is promoted meanwhile is found in Redis then.
    delayed_queues = sorted(found, key=lambda delayed: delayed.layout != BESIDE)
    return {delayed: found[delayed] for delayed in delayed_queues if found[delayed]}, skipped


class _Row(NamedTuple):
    message: Waiting
    position: Position


def _rows(
    store: "DelayStore", queue: str, selection: Selection, position: Position | None, count: int
) -> Iterator[_Row | Skipped]:
    """Yields the messages of one queue, the next due first; or, where it cannot be read, why."""
    page, from_ms = (None, selection.from_ms) if position is None else position.start(queue, store.layout)
    from_ms = max(from_ms, selection.from_ms)
    try:
        while page is None or page.more:
            page = store.scan.browse(queue, page, from_ms, selection.to_ms, count)
            for message, (layout, (member, due)) in zip(page.messages, page.places, strict=True):
                yield _Row(message, Position(due, queue, layout, member))
    except ResponseError as error:
        yield Skipped(queue, str(error))


def _due_ms(row: _Row | Skipped) -> float:
    return -inf if isinstance(row, Skipped) else row.message.due_ms
