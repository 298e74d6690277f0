"""The store's operations that read whole queues: page by page, or in parts that several readers share."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from itertools import compress, islice
from math import ceil, inf, isfinite
from typing import Any

from kombu_delayq.message.text import as_bytes, as_text
from kombu_delayq.redis.replies import checked
from kombu_delayq.store.client import ScriptCall, StorePart
from kombu_delayq.store.hash_layout import id_of
from kombu_delayq.store.redisson_layout import cursor_of, mark_of, message_of, named_field, own_id
from kombu_delayq.store.types import Cursor, Page, Part, QueueForm, Scanned, Waiting, rows_of, waiting_of

#: About the largest number of bytes of the bodies on a page. It limits how long Redis is busy, and a reader's memory.
PAGE_BYTES = 500_000
#: About the largest number of bytes that one call of ``browse`` looks up, which limits how long it keeps Redis busy.
MAX_BYTES = 300_000

#: By form, rows of the script ``scan``: id, due time, priority, body, cursor.
Rows = dict[str, list[tuple[Any, ...]]]


class Scan(StorePart):
    """Reads whole queues, in short calls. The result is no snapshot: messages come and go meanwhile."""

    def browse(
        self,
        queue: str,
        after: Page | None = None,
        from_ms: float = -inf,
        to_ms: float = inf,
        count: int = 100,
    ) -> Page:
        """Reads a page of a queue's waiting messages, in the order of their due times; one round trip.

        Of messages with one due time, those in the store's own layout come first.

        Args:
            queue: Its name.
            after: The page before; None for the first.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time that all messages are before, ms since the epoch.
            count: Most messages to return; fewer come when they are large.
        """
        return self._client.in_each_form(lambda forms: self._browse(queue, after, from_ms, to_ms, count, forms))

    def _browse(
        self, queue: str, after: Page | None, from_ms: float, to_ms: float, count: int, forms: Sequence[str]
    ) -> Page:
        ends = dict(after.ends) if after is not None else {}
        from_ms = max([from_ms, *(float(due) for _, due in ends.values())])
        rows, more = self._read(queue, ends, from_ms, to_ms, count, forms)
        # A conversion may have moved messages of the last page to another layout; they must not be read there again.
        last = after.messages if after is not None else []
        moved = {_as_moved(message, form) for message in last for form in rows if form != message.layout}
        repeated = self._repeated(queue, ends, from_ms, rows)
        read = list(_next_due(rows, more, count))
        found = [waiting_of(queue, form, row[:4]) for form, row in read]
        places = [(form, (as_bytes(row[4]), as_bytes(row[1]))) for form, row in read]
        is_new = [
            _as_moved(one, one.layout) not in moved and (form, member) not in repeated
            for one, (form, (member, _)) in zip(found, places, strict=True)
        ]
        ends |= dict(places)
        is_more = any(more.values()) or len(read) < sum(map(len, rows.values()))
        return Page(list(compress(found, is_new)), is_more, ends, tuple(compress(places, is_new)))

    def _read(
        self, queue: str, ends: Mapping[str, Cursor], from_ms: float, to_ms: float, count: int, forms: Sequence[str]
    ) -> tuple[Rows, dict[str, bool]]:
        """Reads messages behind the ends of the page before. Returns by form the rows, and whether there are more."""
        bounds = (repr(from_ms), repr(to_ms))
        calls: list[ScriptCall] = [
            (
                self._client.stored(queue, form),
                [*bounds, *ends.get(form, (b"", b"")), "", "", count, MAX_BYTES, "1"],
                form,
            )
            for form in forms
        ]
        rows, more = {}, {}
        for form, reply in zip(forms, checked(self._client.run_each("scan", calls)[0]), strict=True):
            more[form], rows[form] = as_text(reply[0]) == "more", list(rows_of(reply[1], 5))
        return rows, more

    def _repeated(
        self, queue: str, ends: Mapping[str, Cursor], from_ms: float, rows: Rows
    ) -> Collection[tuple[str, bytes]]:
        """Returns form and place of those rows whose messages were, or will be, on a page in another layout."""
        return ()

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return sum(self.sizes([queue], from_ms, to_ms).values())

    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[QueueForm, int]:
        """Counts messages that are due from ``from_ms`` on and before ``to_ms``; one round trip.

        Returns:
            Number of messages by queue and form; for each queue, the store's own layout comes first.
        """

        def look(layouts: Sequence[str]) -> dict[QueueForm, int]:
            forms = [QueueForm(queue, layout) for queue in queues for layout in layouts]
            ends = (from_ms, f"({to_ms!r}")
            counts = self._client.send([("ZCOUNT", self._client.due(*form), *ends) for form in forms])
            return dict(zip(forms, counts, strict=True))

        return self._client.in_each_form(look)

    def split(
        self,
        queue: str,
        ranks: Sequence[int],
        from_ms: float = -inf,
        to_ms: float = inf,
        layout: str | None = None,
    ) -> list[Part]:
        """Cuts a queue's waiting messages, in one layout, into parts; one round trip.

        Parts end at messages, not at ranks, so that a message stays in its part while others come and go.

        Args:
            queue: Its name.
            ranks: Ranks of the last messages of all parts but the last: positions among the messages within the bounds,
                from 0, ascending.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time that all messages are before, ms since the epoch.
            layout: The form, by default the store's own.

        Returns:
            The parts in order, one more than there are ranks; fewer if a rank is beyond the last message.
        """
        layout = layout or self._client.layout
        bounds = [repr(from_ms), repr(to_ms)]
        ends = self._client.run("split", [self._client.due(queue, layout)], [*bounds, *ranks], layout) if ranks else []
        cursors = [(as_bytes(ends[at]), as_bytes(ends[at + 1])) for at in range(0, len(ends), 2)]
        pairs = zip([None, *cursors], [*cursors, None], strict=True)
        return [Part(queue, after, until, layout) for after, until in pairs]

    def scan(
        self, part: Part, after: Scanned | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 500
    ) -> Scanned:
        """Reads a page of the messages of a part, without bodies; one round trip.

        Args:
            part: The part of a queue.
            after: The page before; None for the first.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time that all messages are before, ms since the epoch.
            count: Most messages to return; fewer come when they are large.
        """
        last = (after.last if after is not None else part.after) or (b"", b"")
        if after is not None and after.last is not None and part.layout == "redisson":
            last = (cursor_of(last[0]), last[1])  # without the message in the entry, which Redis does not need
        args = [repr(from_ms), repr(to_ms), *last, *(part.until or (b"", b"")), count, PAGE_BYTES, "0"]
        more, found, lengths = self._client.run("scan", self._client.stored(part.queue, part.layout), args, part.layout)
        return Scanned(found[0::2], found[1::2], lengths, as_text(more) == "more")

    def bodies(self, part: Part, members: Sequence[bytes]) -> list[bytes | None]:
        """Reads the stored bodies of messages, with their marks.

        One round trip, and one more if some are missing; none if the index members contain the messages.

        Args:
            part: The part of the queue that has the messages.
            members: Index members of the messages, at least one.

        Returns:
            The value of each message, see ``kombu_delayq.store.redisson_layout``; empty if it is lost, None if the
            message no longer waits.
        """
        if part.layout == "redisson":
            return [message_of(member) or b"" for member in members]
        bodies, due = self._keys.bodies(part.queue), self._keys.due(part.queue)
        found: list[bytes | None] = self._client.ask("HMGET", bodies, *map(id_of, members))
        missing = [at for at, body in enumerate(found) if body is None]
        if missing:
            still = self._client.ask("ZMSCORE", due, *(members[at] for at in missing))
            for at, score in zip(missing, still, strict=True):
                found[at] = None if score is None else b""
        return found

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids under which messages are stored; one round trip if the index members do not contain them.

        Args:
            part: The part of the queue that has the messages.
            members: Index members of the messages, at least one.
        """
        if part.layout != "redisson":
            return list(map(id_of, members))
        marks = list(map(mark_of, members))
        named = self._client.ask("HMGET", self._keys.ids(part.queue), *map(named_field, marks))
        return [
            name if name is not None else own_id(mark, message_of(member) or b"")
            for name, mark, member in zip(named, marks, members, strict=True)
        ]


def _next_due(
    rows: Mapping[str, Sequence[tuple[Any, ...]]], more: Mapping[str, bool], count: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yields rows of several forms with their forms, the next due first, while the order is certain.

    It ends with the last row of a layout that has more rows than were read.
    """
    left = {form: len(found) for form, found in rows.items()}
    pairs = ([(form, row) for row in found] for form, found in rows.items())
    for form, row in islice(merge(*pairs, key=lambda pair: float(pair[1][1])), count):
        yield form, row
        left[form] -= 1
        if more[form] and not left[form]:
            return


def _as_moved(message: Waiting, form: str) -> tuple[float, bytes | None, str]:
    """Returns what a message is known by in a form: a conversion rounds due times to whole ms."""
    return whole_ms(message.due_ms), message.body, form


def whole_ms(due_ms: float) -> float:
    """Returns a due time as Redisson's layout keeps it."""
    return ceil(due_ms) if isfinite(due_ms) else due_ms
