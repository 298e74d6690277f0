"""The store's operations that read whole queues: page by page, or in parts that several readers share."""

from collections.abc import Collection, Sequence
from math import inf
from typing import Any, NamedTuple

from kombu_delayq.redis import Args, Stored, ZSetKey, operation
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.types import Cursor, DelayedQueue, Page, Part, Scanned, rows_of, waiting_of
from kombu_delayq.text import as_bytes, as_text

#: About the largest number of bytes of the bodies on a page. It limits how long Redis is busy, and a reader's memory.
PAGE_BYTES = 500_000
#: About the largest number of bytes that one call of ``browse`` looks up, which limits how long it keeps Redis busy.
MAX_BYTES = 300_000


class Span(NamedTuple):
    """The part of a queue that is read: bounds of due times, and index members with their due times."""

    from_ms: float
    to_ms: float
    last: bytes
    last_due: bytes
    final: bytes
    final_due: bytes


@operation()
def scan(*, keys: Stored, span: Span, count: int, max_bytes: int, with_bodies: bool) -> list[Any]: ...
@operation()
def split(*, due: ZSetKey, from_ms: float, to_ms: float, ranks: Args[int]) -> list[bytes]: ...


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

        Args:
            queue: Its name.
            after: The page before; None for the first.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time that all messages are before, ms since the epoch.
            count: Most messages to return; fewer come when they are large.
        """
        layout = self._client.layout
        last = after.ends.get(layout, (b"", b"")) if after is not None else (b"", b"")
        from_ms = max(from_ms, float(last[1] or from_ms))
        part = Part(queue, last, layout=layout)
        more, found, *_ = self._scan(part, last, from_ms, to_ms, count, with_bodies=True)
        rows = list(rows_of(found, 5))
        places = tuple((layout, (as_bytes(row[4]), as_bytes(row[1]))) for row in rows)
        ends = {layout: places[-1][1]} if places else dict(after.ends) if after is not None else {}
        return Page([waiting_of(queue, layout, row[:4]) for row in rows], as_text(more) == "more", ends, places)

    def count(self, queue: str, from_ms: float = -inf, to_ms: float = inf) -> int:
        """Counts the messages of a queue that are due from ``from_ms`` on and before ``to_ms``."""
        return sum(self.sizes([queue], from_ms, to_ms).values())

    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[DelayedQueue, int]:
        """Counts messages that are due from ``from_ms`` on and before ``to_ms``; one round trip.

        Returns:
            Number of messages by queue and layout.
        """
        delayed_queues = [DelayedQueue(queue, self._client.layout) for queue in queues]
        ends = (from_ms, "inf" if to_ms == inf else f"({to_ms!r}")
        counts = self._client.send([("ZCOUNT", self._client.due(*delayed), *ends) for delayed in delayed_queues])
        return dict(zip(delayed_queues, counts, strict=True))

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
            layout: The layout, by default the store's own.

        Returns:
            The parts in order, one more than there are ranks; fewer if a rank is beyond the last message.
        """
        layout = layout or self._client.layout
        call = split(due=self._client.due(queue, layout), from_ms=from_ms, to_ms=to_ms, ranks=ranks)
        ends = self._client.run(call.on(layout)) if ranks else []
        cursors = [*zip(ends[0::2], ends[1::2], strict=True)]
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
        if after is not None and after.last is not None:
            last = (LAYOUT_OF[part.layout].cursor(last[0]), last[1])
        more, found, lengths = self._scan(part, last, from_ms, to_ms, count, with_bodies=False)
        return Scanned(found[0::2], found[1::2], lengths, as_text(more) == "more")

    def _scan(
        self, part: Part, last: Cursor, from_ms: float, to_ms: float, count: int, *, with_bodies: bool
    ) -> list[Any]:
        keys, until = self._client.stored(part.queue, part.layout), part.until or (b"", b"")
        span = Span(from_ms, to_ms, *last, *until)
        max_bytes = MAX_BYTES if with_bodies else PAGE_BYTES
        call = scan(keys=keys, span=span, count=count, max_bytes=max_bytes, with_bodies=with_bodies)
        return self._client.run(call.on(part.layout))

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
        return LAYOUT_OF[part.layout].bodies(self._client, self._keys, part.queue, members)

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids under which messages are stored; one round trip if the index members do not contain them.

        Args:
            part: The part of the queue that has the messages.
            members: Index members of the messages, at least one.
        """
        return LAYOUT_OF[part.layout].ids(self._client, self._keys, part.queue, members)
