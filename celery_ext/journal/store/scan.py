"""Reading whole queues, in Redis and in the journal."""

from collections.abc import Collection, Mapping, Sequence
from math import inf

from celery_ext.journal.table import Journal, Row
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.formats.hash import id_of, shared_id
from kombu_delayq.store.lookup import Lookup
from kombu_delayq.store.types import JOURNAL, Cursor, Part, QueueForm, Scanned
from kombu_delayq.store.viewing.scan import Rows, Scan, whole_ms

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
