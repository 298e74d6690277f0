"""Whole queues in Redis and in the journal: their names, their figures, their messages, and their end."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import merge
from itertools import islice
from math import inf

from redis.exceptions import ResponseError

from celery_ext.journal.both import PartOfBoth
from celery_ext.journal.journal import Journal
from celery_ext.journal.promotion import Promotion, Row, RowNumber
from celery_ext.journal.state import refuse_elsewhere
from kombu_delayq.store import (
    BESIDE,
    Cursor,
    DelayedQueue,
    Figures,
    Lookup,
    Page,
    Part,
    Queues,
    QueueStats,
    Scan,
    Scanned,
    StoreClient,
    Waiting,
    id_of,
    shared_id,
    whole_ms,
)
from kombu_delayq.text import as_bytes


def add_to_count(client: StoreClient, queue: str, operation: str, number: int) -> None:
    """Counts what was done to messages of a queue that waited in the journal. A Redis that refuses is no error."""
    if number:
        with suppress(ResponseError):
            client.ask("HINCRBY", client.keys.counts(queue), operation, number)


def names_of(messages: Iterable[Waiting]) -> set[str]:
    """Returns the ids of messages, and those that messages stored beside others have."""
    return {name for one in messages for name in (one.id, shared_id(one.id)) if name is not None}


def as_read(message: Row | Waiting) -> tuple[float, bytes]:
    """Returns by what a message is known in both stores; Redisson's layout keeps whole ms."""
    return whole_ms(message.due_ms), message.body or b""


class JournaledQueues(PartOfBoth[Queues]):
    """Lists, counts and empties queues wherever their messages wait."""

    def __init__(self, redis: Queues, journal: Journal, client: StoreClient, promotion: Promotion) -> None:
        super().__init__(redis, journal)
        self._client = client
        self._promotion = promotion

    def names(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages, in Redis or in the journal."""
        rows, names = self._both(self._journal.queues, self._redis.names)
        return sorted({*rows, *names})

    def exists(self, queue: str) -> bool:
        """Whether anybody has published to a queue or consumes it; see ``Queues.exists``."""
        return self._journal.count(queue) > 0 or self._redis.exists(queue)

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue."""
        return sum(self._both(lambda: self._journal.count(queue), lambda: self._redis.size(queue)))

    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages."""
        rows, stats = self._both(lambda: self._journal.counts(queues=[queue]), lambda: self._redis.stats(queue))
        return with_rows(self._journal, [stats], rows)[0]

    def purge(self, queue: str, *, with_ready: bool = False) -> int:
        """Removes all delayed messages of a queue. Returns how many; see ``Queues.purge``."""
        both = self._both(lambda: self._purge_rows(queue), lambda: self._redis.purge(queue, with_ready=with_ready))
        return sum(both)

    def delete(self, queue: str) -> int:
        """Removes a queue's delayed messages and all that is known about it. Returns how many messages."""
        return sum(self._both(lambda: self._purge_rows(queue), lambda: self._redis.delete(queue)))

    def _purge_rows(self, queue: str) -> int:
        count = 0
        refuse_elsewhere(self._journal, self._promotion)
        while gone := self._journal.purge(queue):
            # A row that is not due yet may be at hand as well: of a promoter with a larger lead, or of a ``run_now``.
            words = self._promotion.claim_rows(RowNumber(queue, seq) for seq in gone.waiting).values()
            count += sum(word == "claimed" for word in words)
        add_to_count(self._client, queue, "purge", count)
        return count


class JournaledFigures(PartOfBoth[Figures]):
    """Counts the messages of many queues wherever they wait."""

    def overview(self, queues: Sequence[str]) -> list[QueueStats]:
        """Counts the messages of queues; see ``Figures.overview``."""
        rows, stats = self._both(lambda: self._journal.counts(queues=queues), lambda: self._redis.overview(queues))
        return with_rows(self._journal, stats, rows)

    def due_counts(self, queues: Sequence[str], bounds_ms: Sequence[float]) -> dict[str, list[int]]:
        """Counts how many messages of queues come due when; see ``Figures.due_counts``."""
        rows, found = self._both(
            lambda: self._journal.due_counts(queues, bounds_ms), lambda: self._redis.due_counts(queues, bounds_ms)
        )
        return {queue: [sum(both) for both in zip(counts, rows[queue], strict=True)] for queue, counts in found.items()}


def with_rows(journal: Journal, found: Sequence[QueueStats], in_journal: dict[str, int]) -> list[QueueStats]:
    """Returns what Redis says of queues together with what waits of them in the journal, which was read before that."""
    both = list(found)
    for at, stats in enumerate(found):
        waiting = in_journal.get(stats.queue, 0)
        if waiting and not stats.error:
            heads = [due_ms for due_ms in (stats.next_due_ms, journal.next_due(stats.queue)) if due_ms is not None]
            next_due_ms = min(heads, default=None)
            is_late = next_due_ms is not None and next_due_ms <= stats.now_ms
            overdue = stats.overdue + (journal.count(stats.queue, to_ms=stats.now_ms) if is_late else 0)
            delayed = stats.delayed + waiting
            both[at] = replace(stats, delayed=delayed, overdue=overdue, next_due_ms=next_due_ms, beside=waiting)
    return both


_MARK = b"\x7f"
_SEQ = slice(1, 9)
_LARGEST = 2**63 - 1


class RowScan:
    """Reads the parts of queues that wait in the journal, as ``Scan`` reads those in Redis.

    A member is a mark, the number of the row in 8 bytes, and the id, as in the default layout.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def split(
        self, queue: str, ranks: Sequence[int], from_ms: float, to_ms: float, layout: str | None = BESIDE
    ) -> list[Part]:
        """Cuts a queue into parts, which end with all messages of a due time; see ``Scan.split``."""
        dues = [due_ms for due_ms in self._journal.boundaries(queue, ranks, from_ms, to_ms) if due_ms < inf]
        ends = [(_member(_LARGEST), repr(due_ms).encode()) for due_ms in dues]
        parts = zip([None, *ends], [*ends, None], strict=True)
        return [Part(queue, after, until, layout or BESIDE) for after, until in parts]

    def scan(self, part: Part, after: Scanned | None, from_ms: float, to_ms: float, count: int) -> Scanned:
        """Reads a page of the messages of a part, without bodies; see ``Scan.scan``."""
        last = (after.last if after is not None else None) or part.after
        rows = self._journal.browse(part.queue, _place(last), from_ms, to_ms, count)
        until = _place(part.until)
        kept = [row for row in rows if until is None or (row.due_ms, row.seq) <= until]
        return Scanned(
            [_member(row.seq, row.id) for row in kept],
            [repr(row.due_ms).encode() for row in kept],
            [len(_value(row)) for row in kept],
            len(kept) == count,
        )

    def bodies(self, part: Part, members: Sequence[bytes]) -> list[bytes | None]:
        """Reads the bodies of messages, with marks as in the default layout; see ``Scan.bodies``."""
        seqs = [_seq(member) for member in members]
        found = {row.seq: _value(row) for row in self._journal.rows(seqs)}
        return [found.get(seq) for seq in seqs]

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids of messages; see ``Scan.ids``."""
        return list(map(id_of, members))


class JournaledScan(PartOfBoth[Scan]):
    """Reads queues wherever their messages wait. Of messages with one due time, those in Redis come first."""

    def __init__(self, redis: Scan, journal: Journal, lookup: Lookup) -> None:
        super().__init__(redis, journal)
        self._rows = RowScan(journal)
        self._lookup = lookup

    def browse(
        self,
        queue: str,
        after: Page | None = None,
        from_ms: float = -inf,
        to_ms: float = inf,
        count: int = 100,
    ) -> Page:
        """Reads a page of a queue's waiting messages, in the order of their due times; see ``Scan.browse``."""
        ends = dict(after.ends) if after is not None else {}
        from_ms = max([from_ms, *(float(due) for _, due in ends.values())])
        in_redis = {**ends}
        last = _place(in_redis.pop(BESIDE, None))
        rows, page = self._both(
            lambda: self._journal.browse(queue, last, from_ms, to_ms, count),
            lambda: self._redis.browse(queue, after and after._replace(ends=in_redis), from_ms, to_ms, count),
        )
        # The page before ended among messages of this due time: some of them may be on it as messages of Redis.
        is_between = any(float(due) == from_ms for _, due in in_redis.values())
        repeated = self._repeated(queue, last, from_ms, rows, page, is_between=is_between)
        read = list(_next_due(page, rows, count))
        number = sum(row is None for _, _, row in read)
        ends |= {place[0]: place[1] for _, place, _ in read}
        if number == len(page.messages):
            ends |= page.ends
        is_more = len(rows) == count or len(read) < len(rows) + len(page.messages) or page.more
        new = [(one, place) for one, place, _ in read if (place[0], place[1][0]) not in repeated]
        return Page([one for one, _ in new], is_more, ends, tuple(place for _, place in new))

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return sum(self.sizes([queue], from_ms, to_ms).values())

    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[DelayedQueue, int]:
        """Counts messages by queue and layout, the journal last; see ``Scan.sizes``.

        A message that is promoted during the call, or was promoted and is not marked yet, counts in both.
        """
        rows, found = self._both(
            lambda: self._journal.counts(from_ms, to_ms, queues), lambda: self._redis.sizes(queues, from_ms, to_ms)
        )
        return found | {DelayedQueue(queue, BESIDE): rows.get(queue, 0) for queue in queues}

    def split(
        self, queue: str, ranks: Sequence[int], from_ms: float = -inf, to_ms: float = inf, layout: str | None = None
    ) -> list[Part]:
        """Cuts a queue's waiting messages, in one layout, into parts; see ``Scan.split`` and ``RowScan.split``."""
        return self._of(layout).split(queue, ranks, from_ms, to_ms, layout)

    def scan(
        self, part: Part, after: Scanned | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 500
    ) -> Scanned:
        """Reads a page of the messages of a part, without bodies; see ``Scan.scan``."""
        return self._of(part.layout).scan(part, after, from_ms, to_ms, count)

    def bodies(self, part: Part, members: Sequence[bytes]) -> list[bytes | None]:
        """Reads the stored bodies of messages; see ``Scan.bodies``."""
        return self._of(part.layout).bodies(part, members)

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids of messages; see ``Scan.ids``."""
        return self._of(part.layout).ids(part, members)

    def _of(self, layout: str | None) -> Scan | RowScan:
        return self._rows if layout == BESIDE else self._redis

    def _repeated(
        self,
        queue: str,
        last: tuple[float, int] | None,
        from_ms: float,
        rows: Sequence[Row],
        page: Page,
        *,
        is_between: bool,
    ) -> set[tuple[str, bytes]]:
        """Returns layout and place of messages that were, or will be, on a page from the other store, too."""
        in_redis = set(map(as_read, page.messages))
        if is_between:
            ids = [row.id for row in rows if row.due_ms == from_ms]
            found = self._lookup.get([queue], ids) if ids else {}
            in_redis.update(as_read(one) for messages in found.values() for one in messages)
        repeated = {(BESIDE, _member(row.seq, row.id)) for row in rows if as_read(row) in in_redis}
        if last is not None and last[0] == from_ms:
            repeated |= self._promoted_since(queue, last, page)
        return repeated

    def _promoted_since(self, queue: str, last: tuple[float, int], page: Page) -> set[tuple[str, bytes]]:
        """Returns layout and place of the messages in Redis that were on a page as rows of the journal."""
        here = [
            (one, layout, member)
            for one, (layout, (member, _)) in zip(page.messages, page.places, strict=True)
            if whole_ms(one.due_ms) == whole_ms(last[0])
        ]
        rows = self._journal.get(names_of(one for one, _, _ in here), None) if here else []
        shown = {row.body for row in rows if row.queue == queue and row.due_ms == last[0] and row.seq <= last[1]}
        return {(layout, member) for one, layout, member in here if (one.body or b"") in shown}


def _next_due(page: Page, rows: Sequence[Row], count: int) -> Iterator[tuple[Waiting, tuple[str, Cursor], Row | None]]:
    """Yields messages of Redis and of the journal with their places, the next due first, while the order is certain.

    It ends with the last message of a store that has more than were read.
    """
    redis = [(one, place, None) for one, place in zip(page.messages, page.places, strict=True)]
    journal = [(row.waiting, (BESIDE, (_member(row.seq, row.id), repr(row.due_ms).encode())), row) for row in rows]
    if page.more and not redis:  # nothing new was on Redis's page, so the order is not known yet
        return
    ends = [redis[-1][1]] if page.more else []
    ends += [journal[-1][1]] if journal and len(journal) == count else []
    for found in islice(merge(redis, journal, key=lambda one: one[0].due_ms), count):
        yield found
        if found[1] in ends:
            return


def _member(seq: int, identity: str = "") -> bytes:
    return _MARK + seq.to_bytes(8) + as_bytes(identity)


def _seq(member: bytes) -> int:
    return min(int.from_bytes(member[_SEQ]), _LARGEST)


def _place(cursor: Cursor | None) -> tuple[float, int] | None:
    """Returns due time and number of the row at which a page or a part ends."""
    return None if cursor is None else (float(cursor[1]), _seq(cursor[0]))


def _value(row: Row) -> bytes:
    return _MARK + row.seq.to_bytes(8) + b"%d" % row.priority + row.body
