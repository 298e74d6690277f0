"""The store's operations for a journal: rows of its table come into the store, each once, and a loss is noticed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from redis.lock import Lock

from kombu_delayq.connection.text import as_text
from kombu_delayq.message.pages import pages
from kombu_delayq.store.client import QueueRegistry, StoreClient, StorePart
from kombu_delayq.store.types import hidden

#: Most rows, and about the most bytes, that one call of the script puts into the store.
PROMOTE_COUNT, PROMOTE_BYTES = 200, 300_000
#: Most rows that one call claims or takes out of the guard.
ROWS = 1000


class Row(NamedTuple):
    """A row of a journal that is to come into the store.

    Attributes:
        seq: Its number, which no other row of the journal ever has.
        queue: The queue to which the message goes when it is due.
        id: The id under which the store keeps the message.
        due_ms: Due time, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
        expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
    """

    seq: int
    queue: str
    id: str | bytes
    due_ms: float
    priority: int
    body: str | bytes
    expire_ms: int = 0

    def __repr__(self) -> str:
        return f"Row(seq={self.seq}, queue={self.queue!r}, id={self.id!r}, body={hidden(self.body)})"


class Office(NamedTuple):
    """Whether a promoter is in office.

    Attributes:
        word: ``taken`` if it is. Otherwise ``lost`` (Redis has no marker), ``other`` (Redis belongs to another
            journal), ``behind`` (Redis was set back to an older state), ``ahead`` (the journal was set back, or has
            gone on since it was read) or ``superseded`` (another promoter was faster).
        term: Number of the term; with another word than ``taken`` that of the marker, 0 without one.
        now_ms: With ``taken``: Redis's clock, ms since the epoch.
        epoch: With another word: the marker's epoch.
        beat: With another word: the marker's beat.
    """

    word: str
    term: int = 0
    now_ms: float = 0.0
    epoch: int = 0
    beat: int = 0


class Pulse(NamedTuple):
    """What the marker says about Redis's data.

    Attributes:
        word: ``sound``, ``lost``, ``other``, ``superseded`` or ``behind``; as in ``Office``.
        term: The marker's term, 0 without a marker.
        now_ms: Redis's clock, ms since the epoch.
    """

    word: str
    term: int
    now_ms: float


class Promoted(NamedTuple):
    """The result of putting rows into the store.

    Attributes:
        word: ``promoted``; or ``lost``, ``other``, ``superseded`` or ``behind``, when the promoter was not in office:
            the rows that are not in ``words`` were left alone.
        words: By number of the row: ``promoted``, ``pushed`` (it was put there before) or ``claimed`` (it was taken out
            of the journal, and was not put there).
    """

    word: str
    words: dict[int, str]


class Marker(NamedTuple):
    """To which journal a Redis belongs.

    Attributes:
        id: Id of the journal.
        term: Number of the term in office.
        epoch: Number of the epoch.
        beat: Grows about every second, together with a beat in the journal.
    """

    id: str
    term: int
    epoch: int
    beat: int


class Promotion(StorePart):
    """Puts rows of a journal into the store, and tells whether Redis has lost data.

    The marker in Redis has the number of the term in office, which fences off promoters of earlier terms. The guard has
    the rows that were pushed and not yet marked in the journal, and those that were claimed: taken out of the journal
    while a promoter may still have them at hand.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client)
        self._registry = registry

    def lease(self) -> Lock:
        """Returns the lock that the one process holds that promotes; for ``lease_ttl`` since it was last renewed."""
        ttl_s = self._client.options.lease_ttl
        return Lock(self._client.redis, self._keys.journal_lease, timeout=ttl_s, blocking=False, thread_local=False)

    def promoter(self) -> str | None:
        """Returns the name of the process that promotes, which is in its lease."""
        name = self._client.redis.get(self._keys.journal_lease)
        return None if name is None else as_text(name)

    def marker(self) -> Marker | None:
        """Returns the marker, or None: Redis never belonged to a journal, or has lost its data."""
        found = {as_text(key): as_text(value) for key, value in self._client.ask("HGETALL", self._keys.journal).items()}
        if "id" not in found:
            return None
        return Marker(found["id"], *(int(found[field]) for field in ("term", "epoch", "beat")))

    def take_office(self, journal: str, epoch: int, beat: int) -> Office:
        """Begins a new term, if the marker agrees with the journal; Redis refuses promoters of earlier terms then."""
        return _office(self._client.run("take_office", [self._keys.journal], [journal, epoch, beat]))

    def begin_epoch(self, journal: str, epoch: int, beat: int, seen_term: int = 0) -> Office:
        """Writes the marker anew, and begins a term, unless another promoter has written the marker meanwhile.

        Args:
            journal: Id of the journal.
            epoch: The epoch that begins.
            beat: The journal's beat.
            seen_term: Term of the marker that is to be replaced, 0 where there is none.
        """
        return _office(
            self._client.run(
                "begin_epoch", [self._keys.journal], [journal, epoch, beat, seen_term if seen_term else ""]
            )
        )

    def pulse(self, journal: str, term: int, beat: int) -> Pulse:
        """Sets the marker's beat to that of the journal, and tells whether Redis's data are those of this term."""
        word, latest, now = self._client.run("pulse", [self._keys.journal], [journal, term, beat])
        return Pulse(as_text(word), int(latest or 0), float(now))

    def promote(self, journal: str, term: int, rows: Iterable[Row]) -> Promoted:
        """Puts rows into the store, each once, under the ids of their messages.

        Rows of several queues may come in any order. A call of the script has at most ``PROMOTE_COUNT`` rows. With an
        error of Redis some of the rows may be in the store; repeated, they are not put there again.

        Args:
            journal: Id of the journal.
            term: The caller's term.
            rows: The rows.
        """
        by_queue: dict[str, list[Row]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        words: dict[int, str] = {}
        for queue, own in by_queue.items():
            for page in pages(own, PROMOTE_COUNT, PROMOTE_BYTES, lambda row: len(row.body)):
                word, *found = self._registry.run("promote", queue, *self._promote_call(journal, term, queue, page))
                if as_text(word) != "promoted":
                    return Promoted(as_text(word), words)
                words.update(zip((row.seq for row in page), map(as_text, found), strict=True))
        return Promoted("promoted", words)

    def claim_rows(self, seqs: Sequence[int]) -> dict[int, str]:
        """Claims rows that the caller has taken out of the journal. Repeating it changes nothing.

        Returns:
            By number of the row: ``claimed`` if no promoter will ever put it into the store; ``pushed`` if one has.
        """
        words: dict[int, str] = {}
        for page in pages(seqs, ROWS):
            found = self._client.run("claim_rows", [self._keys.journal_guard], list(page))
            words.update(zip(page, map(as_text, found), strict=True))
        return words

    def settle_rows(self, seqs: Iterable[int]) -> None:
        """Takes rows out of the guard which the journal has marked, or which nobody can promote any more."""
        for page in pages(seqs, ROWS):
            self._client.ask("HDEL", self._keys.journal_guard, *page)

    def pushed(self) -> list[int]:
        """Returns the rows that were put into the store and not yet taken out of the guard, such as by a dead promoter.

        They are few while promoters work. Cost O(number of rows in the guard).
        """
        return [seq for seq, kind, _ in self._guarded() if kind == "p"]

    def prune(self, claimed_before_ms: float, pushed_before_ms: float) -> int:
        """Takes old entries out of the guard.

        Args:
            claimed_before_ms: Claimed rows leave that were claimed before. No promoter may have read its rows earlier.
            pushed_before_ms: Pushed rows leave that were pushed before. No caller may be about to claim one of them.

        Returns:
            Number of rows that left.
        """
        before = {"c": claimed_before_ms, "p": pushed_before_ms}
        old = [seq for seq, kind, since_ms in self._guarded() if since_ms < before[kind]]
        self.settle_rows(old)
        return len(old)

    def _guarded(self) -> Iterator[tuple[int, str, float]]:
        for seq, note in self._client.redis.hscan_iter(self._keys.journal_guard, count=ROWS):
            yield int(seq), as_text(note)[0], float(as_text(note)[1:])

    def _promote_call(self, journal: str, term: int, queue: str, page: list[Row]) -> tuple[list[str], list[Any]]:
        keys = [self._keys.journal, self._keys.journal_guard, *self._client.stored(queue)]
        expire_ms = max(row.expire_ms for row in page)
        args: list[Any] = [self._client.wake(queue), queue, expire_ms, journal, term]
        for row in page:
            args += (row.seq, row.id, repr(row.due_ms), row.priority, row.body)
        return keys, args


def _office(reply: Sequence[Any]) -> Office:
    word, *rest = map(as_text, reply)
    if word == "taken":
        return Office(word, int(rest[0]), float(rest[1]))
    term, epoch, beat = (int(number or 0) for number in rest or ("", "", ""))
    return Office(word, term, 0.0, epoch, beat)
