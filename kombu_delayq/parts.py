"""The store's operations for those who read whole queues, in parts, several at once, and a column at a time."""

from collections.abc import Sequence
from math import inf

from kombu_delayq.calls import Caller, as_bytes, as_text
from kombu_delayq.marks import id_of
from kombu_delayq.results import Part, Scanned

#: About the most bytes of bodies on a page, which bounds how long Redis is busy with it, and the memory of a reader.
PAGE_BYTES = 500_000


class QueueParts(Caller):
    """Cuts queues into parts and reads them. All calls are short; what is read is no snapshot."""

    def cut(self, queue: str, ranks: Sequence[int], from_ms: float = -inf, to_ms: float = inf) -> list[Part]:
        """Cuts a queue's waiting messages into parts; one round trip.

        Parts end at messages, not at ranks, so that what waits stays in its part while others come and go.

        Args:
            queue: Its name.
            ranks: Of the last message of each part but the last, among those within the bounds, from 0 on, ascending.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time before which messages are wanted, ms since the epoch.

        Returns:
            One part more than there are ranks, in order; fewer when there is no message at some of them any more.
        """
        ends = self._run("cut", [self._due(queue)], [repr(from_ms), repr(to_ms), *ranks]) if ranks else []
        cursors = [(as_bytes(ends[at]), as_bytes(ends[at + 1])) for at in range(0, len(ends), 2)]
        return [Part(queue, after, until) for after, until in zip([None, *cursors], [*cursors, None], strict=True)]

    def scan(
        self, part: Part, after: Scanned | None = None, from_ms: float = -inf, to_ms: float = inf, count: int = 500
    ) -> Scanned:
        """Reads which messages of a part wait, a page of them; one round trip.

        Args:
            part: Of a queue.
            after: The page before; None for the first.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time before which messages are wanted, ms since the epoch.
            count: Most messages to return; fewer come when they are large.
        """
        last = (after.last if after is not None else part.after) or (b"", b"")
        args = [repr(from_ms), repr(to_ms), *last, *(part.until or (b"", b"")), count, PAGE_BYTES]
        keys = self._stored(part.queue)
        more, found, lengths = self._run("scan", keys, args)
        return Scanned(found[0::2], found[1::2], lengths, as_text(more) == "more")

    def bodies(self, queue: str, members: Sequence[bytes]) -> list[bytes | None]:
        """Reads what is stored of messages, with their marks; one round trip, and one more where some is missing.

        Args:
            queue: Its name.
            members: Their index members, one at least.

        Returns:
            For each what is stored, see ``kombu_delayq.marks``; empty when it is lost, None when it does not wait any
            more.
        """
        found: list[bytes | None] = self.client.execute_command("HMGET", self.keys.backup(queue), *map(id_of, members))
        missing = [at for at, body in enumerate(found) if body is None]
        if missing:
            still = self.client.execute_command("ZMSCORE", self.keys.due(queue), *(members[at] for at in missing))
            for at, due in zip(missing, still, strict=True):
                found[at] = None if due is None else b""
        return found
