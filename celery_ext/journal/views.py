"""Whole queues in Redis and in the journal: their names, their figures, their messages, and their end."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from redis.exceptions import ResponseError

from celery_ext.journal.table import Journal, Row
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.formats.hash import id_of, shared_id
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.lookup import Lookup
from kombu_delayq.store.queues import Queues, QueueStats
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import JOURNAL, Cursor, Part, QueueForm, Scanned
from kombu_delayq.store.upkeep.promotion import Promotion
from kombu_delayq.store.upkeep.promotion_types import RowNumber
from kombu_delayq.store.viewing.figures import Figures
from kombu_delayq.store.viewing.scan import Rows, Scan, whole_ms


def add_to_count(client: StoreClient, keys: Keys, queue: str, operation: str, number: int) -> None:
    """Counts what was done to messages of a queue that waited in the journal. A Redis that refuses is no error."""
    if number:
        with suppress(ResponseError):
            client.ask("HINCRBY", keys.counts(queue), operation, number)


class JournaledQueues(Queues):
    """Lists, counts and empties queues wherever their messages wait.

    Transfer workers do without the journal: ``registered``, ``keep_alive``, ``forget`` and ``convert`` never ask it.

    Args:
        client: As of ``Queues``.
        registry: As of ``Queues``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry, journal: Journal) -> None:
        super().__init__(client, registry)
        self._journal = journal
        self._promotion = Promotion(client, registry)

    def names(self) -> list[str]:
        """Returns the names of the queues that hold or held delayed messages, in Redis or in the journal."""
        in_journal = self._journal.queues()
        return sorted({*in_journal, *super().names()})

    def exists(self, queue: str) -> bool:
        """Whether anybody has published to a queue or consumes it; see ``Queues.exists``."""
        return super().exists(queue) or self._journal.count(queue) > 0

    def size(self, queue: str) -> int:
        """Counts the delayed messages of a queue."""
        in_journal = self._journal.count(queue)
        return in_journal + super().size(queue)

    def stats(self, queue: str) -> QueueStats:
        """Counts a queue's messages."""
        in_journal = self._journal.counts(queues=[queue])
        return with_rows(self._journal, [super().stats(queue)], in_journal)[0]

    def purge(self, queue: str) -> int:
        """Removes all delayed messages of a queue, from the journal first. Returns how many."""
        count = 0
        while gone := self._journal.purge(queue):
            # A row that is not due yet may be at hand as well: of a promoter with a larger lead, or of a ``run_now``.
            words = self._promotion.claim_rows(RowNumber(queue, seq) for seq in gone.waiting).values()
            count += sum(word == "claimed" for word in words)
        add_to_count(self._client, self._keys, queue, "purge", count)
        return count + super().purge(queue)


class JournaledFigures(Figures):
    """Counts the messages of many queues wherever they wait.

    Args:
        client: As of ``Figures``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, journal: Journal) -> None:
        super().__init__(client)
        self._journal = journal

    def overview(self, queues: Sequence[str]) -> list[QueueStats]:
        """Counts the messages of queues; see ``Figures.overview``."""
        in_journal = self._journal.counts(queues=queues)
        return with_rows(self._journal, super().overview(queues), in_journal)

    def due_counts(self, queues: Sequence[str], bounds_ms: Sequence[float]) -> dict[str, list[int]]:
        """Counts how many messages of queues come due when; see ``Figures.due_counts``."""
        rows = self._journal.due_counts(queues, bounds_ms)
        found = super().due_counts(queues, bounds_ms)
        return {queue: [sum(both) for both in zip(counts, rows[queue], strict=True)] for queue, counts in found.items()}


def with_rows(journal: Journal, found: Sequence[QueueStats], in_journal: dict[str, int]) -> list[QueueStats]:
    """Returns what Redis says of queues together with what the journal has of them.

    Args:
        journal: The tables.
        found: What Redis says.
        in_journal: How many rows of each queue wait in the journal, read before that.
    """
    return [
        _with_rows(journal, one, in_journal[one.queue]) if in_journal.get(one.queue) and not one.error else one
        for one in found
    ]


def _with_rows(journal: Journal, stats: QueueStats, waiting: int) -> QueueStats:
    heads = [due_ms for due_ms in (stats.next_due_ms, journal.next_due(stats.queue)) if due_ms is not None]
    next_due_ms = min(heads, default=None)
    is_late = next_due_ms is not None and next_due_ms <= stats.now_ms
    overdue = journal.counts(to_ms=stats.now_ms, queues=[stats.queue]).get(stats.queue, 0) if is_late else 0
    delayed, overdue = stats.delayed + waiting, stats.overdue + overdue
    return replace(stats, delayed=delayed, overdue=overdue, next_due_ms=next_due_ms, in_journal=waiting)


_MARK = b"\x7f"
_SEQ = slice(1, 9)
_LARGEST = 2**63 - 1


class JournaledScan(Scan):
    """Reads queues wherever their messages wait.

    The journal is read first, because what is promoted meanwhile is found in Redis then. Of messages with one due time,
    those in Redis come first. In the journal a member is a mark, the number of the row in 8 bytes, and the id, as in
    the default layout.

    Args:
        client: As of ``Scan``.
        journal: The tables.
    """

    def __init__(self, client: StoreClient, journal: Journal) -> None:
        super().__init__(client)
        self._journal = journal
        self._redis = Lookup(client)

    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[QueueForm, int]:
        """Counts messages by queue and form, the journal last; see ``Scan.sizes``.

        A message that is promoted during the call, or was promoted and is not marked yet, counts in both.
        """
        rows = self._journal.counts(from_ms, to_ms, queues)
        found = super().sizes(queues, from_ms, to_ms)
        return found | {QueueForm(queue, JOURNAL): rows.get(queue, 0) for queue in queues}

    def cut(
        self, queue: str, ranks: Sequence[int], from_ms: float = -inf, to_ms: float = inf, layout: str | None = None
    ) -> list[Part]:
        """Cuts a queue's waiting messages, in one layout, into parts; see ``Scan.cut``.

        Parts of the journal end with all messages of a due time.
        """
        if layout != JOURNAL:
            return super().cut(queue, ranks, from_ms, to_ms, layout)
        dues = [due_ms for due_ms in self._journal.boundaries(queue, ranks, from_ms, to_ms) if due_ms < inf]
        ends = [(_member(_LARGEST), repr(due_ms).encode()) for due_ms in dues]
        return [Part(queue, after, until, JOURNAL) for after, until in zip([None, *ends], [*ends, None], strict=True)]

    def scan(
        self, part: Part, after: Scanned | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 500
    ) -> Scanned:
        """Reads a page of the messages of a part, without bodies; see ``Scan.scan``."""
        if part.layout != JOURNAL:
            return super().scan(part, after, from_ms, to_ms, count)
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
        if part.layout != JOURNAL:
            return super().bodies(part, members)
        seqs = [_seq(member) for member in members]
        found = {row.seq: _value(row) for row in self._journal.rows(seqs)}
        return [found.get(seq) for seq in seqs]

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids of messages; see ``Scan.ids``."""
        return list(map(id_of, members)) if part.layout == JOURNAL else super().ids(part, members)

    def _read(
        self, queue: str, ends: Mapping[str, Cursor], from_ms: float, to_ms: float, count: int, forms: Sequence[str]
    ) -> tuple[Rows, dict[str, bool]]:
        found = self._journal.browse(queue, _place(ends.get(JOURNAL)), from_ms, to_ms, count)
        rows, more = super()._read(queue, ends, from_ms, to_ms, count, forms)
        own = [
            (as_bytes(row.id), repr(row.due_ms).encode(), b"%d" % row.priority, row.body, _member(row.seq, row.id))
            for row in found
        ]
        return {**rows, JOURNAL: own}, {**more, JOURNAL: len(found) == count}

    def _repeated(
        self, queue: str, ends: Mapping[str, Cursor], from_ms: float, rows: Rows
    ) -> Collection[tuple[str, bytes]]:
        own = rows[JOURNAL]
        in_redis = {
            (whole_ms(float(due)), as_bytes(body))
            for form, found in rows.items()
            for _, due, _, body, _ in found
            if form != JOURNAL
        }
        # The page before ended among messages of this due time: some of them may be on it in the other tier.
        if any(form != JOURNAL and float(due) == from_ms for form, (_, due) in ends.items()):
            ids = [as_text(row[0]) for row in own if float(row[1]) == from_ms]
            in_redis |= {
                (whole_ms(one.due_ms), one.body or b"")
                for messages in (self._redis.get([queue], ids) if ids else {}).values()
                for one in messages
            }
        repeated = {(JOURNAL, member) for _, due, _, body, member in own if (whole_ms(float(due)), body) in in_redis}
        last = _place(ends.get(JOURNAL))
        if last is not None and last[0] == from_ms:
            repeated |= self._promoted_since(queue, last, rows)
        return repeated

    def _promoted_since(self, queue: str, last: tuple[float, int], rows: Rows) -> set[tuple[str, bytes]]:
        """Returns form and place of the messages in Redis that were on a page as rows of the journal."""
        here = [
            (form, as_text(row[0]), as_bytes(row[3]), as_bytes(row[4]))
            for form, found in rows.items()
            for row in found
            if form != JOURNAL and whole_ms(float(row[1])) == whole_ms(last[0])
        ]
        if not here:
            return set()
        ids = {identity for _, stored, _, _ in here for identity in (stored, shared_id(stored)) if identity is not None}
        shown = {
            row.body
            for row in self._journal.get(ids, None)
            if row.queue == queue and row.due_ms == last[0] and row.seq <= last[1]
        }
        return {(form, member) for form, _, body, member in here if body in shown}


def _member(seq: int, identity: str = "") -> bytes:
    return _MARK + seq.to_bytes(8) + as_bytes(identity)


def _seq(member: bytes) -> int:
    return min(int.from_bytes(member[_SEQ]), _LARGEST)


def _place(cursor: Cursor | None) -> tuple[float, int] | None:
    """Returns due time and number of the row at which a page or a part ends."""
    return None if cursor is None else (float(cursor[1]), _seq(cursor[0]))


def _value(row: Row) -> bytes:
    return _MARK + row.seq.to_bytes(8) + b"%d" % row.priority + row.body
