"""The store's operations for those who read whole queues, in parts, several at once, and a column at a time."""

from collections.abc import Collection, Sequence
from math import inf

from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.client import Caller, in_each_form
from kombu_delayq.store.formats.hash import id_of
from kombu_delayq.store.formats.redisson import cursor_of, mark_of, message_of, named_field, told_id
from kombu_delayq.store.types import Part, QueueForm, Scanned

#: About the most bytes of bodies on a page, which bounds how long Redis is busy with it, and the memory of a reader.
PAGE_BYTES = 500_000


class QueueParts(Caller):
    """Cuts queues into parts and reads them. All calls are short; what is read is no snapshot."""

    @in_each_form
    def sizes(self, queues: Collection[str], from_ms: float = -inf, to_ms: float = inf) -> dict[QueueForm, int]:
        """Counts messages that are due from ``from_ms`` on and before ``to_ms``; one round trip.

        Returns:
            For each queue how many there are, first in the store's own form of backup, then in the other.
        """
        forms = [QueueForm(queue, backup) for queue in queues for backup in self._forms]
        counts = self.send([("ZCOUNT", self._due(*form), from_ms, f"({to_ms!r}") for form in forms])
        return dict(zip(forms, counts, strict=True))

    def cut(
        self,
        queue: str,
        ranks: Sequence[int],
        from_ms: float = -inf,
        to_ms: float = inf,
        backup: str | None = None,
    ) -> list[Part]:
        """Cuts a queue's waiting messages, in one form of backup, into parts; one round trip.

        Parts end at messages, not at ranks, so that what waits stays in its part while others come and go.

        Args:
            queue: Its name.
            ranks: Of the last message of each part but the last, among those within the bounds, from 0 on, ascending.
            from_ms: Least due time, ms since the epoch.
            to_ms: Due time before which messages are wanted, ms since the epoch.
            backup: The form, by default the store's own.

        Returns:
            One part more than there are ranks, in order; fewer when there is no message at some of them any more.
        """
        backup = backup or self.backup
        bounds = [repr(from_ms), repr(to_ms)]
        ends = self._run("cut", [self._due(queue, backup)], [*bounds, *ranks], backup) if ranks else []
        cursors = [(as_bytes(ends[at]), as_bytes(ends[at + 1])) for at in range(0, len(ends), 2)]
        pairs = zip([None, *cursors], [*cursors, None], strict=True)
        return [Part(queue, after, until, backup) for after, until in pairs]

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
        if after is not None and after.last is not None and part.backup == "list":
            last = (cursor_of(last[0]), last[1])  # an entry has its message, which need not go back
        args = [repr(from_ms), repr(to_ms), *last, *(part.until or (b"", b"")), count, PAGE_BYTES, "0"]
        more, found, lengths = self._run("scan", self._stored(part.queue, part.backup), args, part.backup)
        return Scanned(found[0::2], found[1::2], lengths, as_text(more) == "more")

    def bodies(self, part: Part, members: Sequence[bytes]) -> list[bytes | None]:
        """Reads what is stored of messages, with their marks.

        One round trip, and one more where some is missing; none where the index members have the messages.

        Args:
            part: Where they wait.
            members: Their index members, one at least.

        Returns:
            For each what is stored, see ``kombu_delayq.store.formats.hash``; empty when it is lost, None when it does
            not wait any more.
        """
        if part.backup == "list":
            return [message_of(member) or b"" for member in members]
        backup, due = self.keys.backup(part.queue), self.keys.due(part.queue)
        found: list[bytes | None] = self.ask("HMGET", backup, *map(id_of, members))
        missing = [at for at, body in enumerate(found) if body is None]
        if missing:
            still = self.ask("ZMSCORE", due, *(members[at] for at in missing))
            for at, score in zip(missing, still, strict=True):
                found[at] = None if score is None else b""
        return found

    def ids(self, part: Part, members: Sequence[bytes]) -> list[bytes]:
        """Returns the ids under which messages are stored; one round trip where the index members do not tell them.

        Args:
            part: Where they wait.
            members: Their index members, one at least.
        """
        if part.backup != "list":
            return list(map(id_of, members))
        marks = list(map(mark_of, members))
        named = self.ask("HMGET", self.keys.ids(part.queue), *map(named_field, marks))
        return [
            each if each is not None else told_id(mark, message_of(member) or b"")
            for each, mark, member in zip(named, marks, members, strict=True)
        ]
