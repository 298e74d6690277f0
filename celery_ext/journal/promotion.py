"""The store's operations for a journal: rows of its table come into the store, each once, and a loss is noticed."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from redis.exceptions import ResponseError
from redis.lock import Lock

from celery_ext.journal.keys import JournalKeys
from kombu_delayq.message import pages
from kombu_delayq.redis import Args, Call, HashKey, Rows, checked, operation
from kombu_delayq.store import BESIDE, Into, QueueRegistry, StoreClient, StorePart, Waiting, without_bodies
from kombu_delayq.text import as_text

R = TypeVar("R")
#: Number of a row, id, due time, priority and body of its message.
Promotable = tuple[int, str, str, int, str | bytes]


class Row(NamedTuple):
    """A row of a journal: a message that is to come into the store, or has come.

    Attributes:
        seq: Its number, which no other row of the journal ever has. A message that is changed gets a new one.
        queue: The queue to which the message goes when it is due.
        id: The id under which the store keeps the message.
        due_ms: Due time, ms since the epoch.
        priority: 0 to 9.
        body: The message as it will be pushed to its queue.
        expire_ms: kombu's ``x-expires`` of the queue in ms, 0 for none.
        state: What the journal says of it; the store does not look at it.
    """

    seq: int
    queue: str
    id: str
    due_ms: float
    priority: int
    body: bytes
    expire_ms: int = 0
    state: int = 0

    def __repr__(self) -> str:
        return without_bodies(self)

    @property
    def waiting(self) -> Waiting:
        """The message as the store shows it."""
        return Waiting(self.queue, self.id, self.due_ms, self.priority, self.body, BESIDE)


class RowNumber(NamedTuple):
    """Which row of a journal.

    Attributes:
        queue: Name of its queue.
        seq: Its number.
    """

    queue: str
    seq: int


class Numbered(Protocol):
    """Anything that says which row it is about."""

    @property
    def queue(self) -> str:
        """Name of the queue."""

    @property
    def seq(self) -> int:
        """Number of the row."""


#: Stands for all queues. On a plain server its marker and guard are the only ones; in a cluster queues have their own,
#: and this marker shows that also what has no marker yet may be lost.
ALL = ""


class Election(NamedTuple):
    """Whether a promoter was elected behind a marker.

    Attributes:
        word: ``elected`` if it is. Otherwise ``lost`` (Redis has no marker), ``other`` (Redis belongs to another
            journal), ``behind`` (Redis was set back to an older state), ``ahead`` (the journal was set back, or has
            gone on since it was read, or a leader noticed a loss and died before it told the journal) or
            ``superseded`` (another promoter was faster).
        token: The marker's token before, 0 without a marker.
        epoch: The marker's epoch before.
        heartbeat: The marker's heartbeat before.
    """

    word: str
    token: int = 0
    epoch: int = 0
    heartbeat: int = 0


class MarkerHeartbeat(NamedTuple):
    """What the marker says about Redis's data.

    Attributes:
        word: ``sound``, ``lost``, ``other``, ``superseded`` or ``behind``; as in ``Election``.
        token: The marker's token, 0 without a marker.
        now_ms: Redis's clock, ms since the epoch.
        server: What tells the server from others, if its data are to be compared with the journal, because it has
            started, or become the primary, since they were; else empty.
    """

    word: str
    token: int
    now_ms: float
    server: str = ""


class PromotedRows(NamedTuple):
    """The result of putting rows into the store.

    Attributes:
        word: ``promoted``; or ``lost``, ``other``, ``superseded`` or ``behind``, when the promoter did not lead:
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
        token: The fencing token of the promoter that leads.
        epoch: Number of the epoch.
        heartbeat: Grows about every second, together with a heartbeat in the journal.
        redis: Id of the data beside it, which a replica or a backup of them has, too, and no other Redis.
    """

    id: str
    token: int
    epoch: int
    heartbeat: int
    redis: str = ""


#: Most rows, and about the most bytes, that one call of the script puts into the store.
PROMOTE_COUNT, PROMOTE_BYTES = 200, 300_000
#: Most rows that one call claims or takes out of the guard.
ROWS = 1000


class _Marker(NamedTuple):
    """The keys of a marker."""

    journal: HashKey
    journal_guard: HashKey


@operation()
def elect(
    *, marker: _Marker, journal_id: str, token: int, epoch: int, least: int, heartbeat: int, guard: str, is_anew: bool
) -> Election: ...
@operation()
def journal_heartbeat(
    *, journal: HashKey, journal_id: str, token: int, heartbeat: int, compared: str
) -> MarkerHeartbeat: ...
@operation()
def promote(
    *, marker: _Marker, into: Into, expire: int, of: str, token: int, hold: str, offers: Rows[Promotable]
) -> list[str]: ...
@operation()
def claim_rows(*, journal_guard: HashKey, hold: str, numbers: Args[int]) -> list[str]: ...
@operation()
def settle_rows(*, marker: _Marker, of: str, token: int, numbers: Args[int]) -> str: ...


class Promotion(StorePart):
    """Puts rows of a journal into the store, and tells whether Redis has lost data.

    The marker in Redis has the fencing token of the promoter that leads. Redis refuses promoters with earlier tokens.
    The guard has two kinds of rows: those that were pushed and are not yet marked in the journal, and those that were
    claimed, because somebody took them out of the journal while a promoter may still have them at hand. Both are those
    of ``ALL``; in a cluster each queue has its own as well, in its slot.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = JournalKeys(client.keys)

    def group_of(self, queue: str) -> str:
        """Returns whose marker and guard are those of a queue: its own in a cluster, else those of all, ``ALL``."""
        return self._keys.slot_group(queue)

    def lease(self) -> Lock:
        """Returns the lock that the one process holds that promotes; for ``lease_ttl`` since it was last renewed."""
        ttl_s = self._client.options.lease_ttl
        return Lock(self._client.redis, self._own.journal_lease, timeout=ttl_s, blocking=False, thread_local=False)

    def promoter(self) -> str | None:
        """Returns the name of the process that promotes, which is in its lease."""
        name = self._client.redis.get(self._own.journal_lease)
        return None if name is None else as_text(name)

    def marker(self, queue: str = ALL) -> Marker | None:
        """Returns the marker, or None: Redis never belonged to a journal, or has lost its data.

        Args:
            queue: The queue whose marker is meant, by default that of all; on a plain server they are the same.
        """
        key = self._own.journal(queue)
        found = {as_text(field): as_text(value) for field, value in self._client.ask("HGETALL", key).items()}
        if "id" not in found:
            return None
        token, epoch, heartbeat = (int(found[field]) for field in ("token", "epoch", "heartbeat"))
        return Marker(found["id"], token, epoch, heartbeat, found.get("redis", ""))

    def place(self) -> str:
        """Returns where the store is, for people: address and database of Redis, and the prefix of keys."""
        redis, keys = self._client.redis, self._keys
        address = getattr(redis.connection_pool, "service_name", None) or ", ".join(sorted(self._client.pool.clients()))
        return f"{address}/{keys.db}{f', key prefix {keys.prefix!r}' if keys.prefix else ''}"

    def server(self) -> str:
        """Returns what no other store has, and this one loses at a restart or a failover; '' if Redis does not tell."""
        client = self._client.client_at(self._own.journal())
        try:
            found = {**client.info("server"), **client.info("replication")}
        except ResponseError:  # forbidden by an ACL
            return ""
        return json.dumps([found.get("run_id"), found.get("master_replid"), self._keys.db, self._keys.prefix])

    def is_marked(self, queue: str) -> bool:
        """Whether there is a marker for a queue, asked once: a publisher meets an error of Redis soon enough."""
        return bool(self._client.ask_once("HGETALL", self._own.journal(queue)))

    def elect(
        self,
        journal: str,
        token: int,
        epoch: int,
        heartbeat: int,
        groups: Iterable[str],
        guard: str = "",
        *,
        anew: bool = False,
    ) -> dict[str, Election]:
        """Begins to lead behind markers that agree with the journal; Redis refuses earlier tokens there then.

        Args:
            journal: Id of the journal.
            token: The caller's token, which the journal gives to nobody else.
            epoch: The journal's epoch; with ``anew`` the one that begins.
            heartbeat: The journal's heartbeat.
            groups: Whose markers, as in ``group_of``. One of a queue may have an earlier epoch, as an epoch ends for
                single queues there.
            guard: Id of the journal's numbers. A guard that has others' is emptied in the same step.
            anew: Whether to write markers that are missing or behind.

        Returns:
            What each marker said, by group.
        """
        called = list(groups)
        calls = [
            elect(
                marker=self._marker(group),
                journal_id=journal,
                token=token,
                epoch=epoch,
                least=0 if group else epoch,
                heartbeat=heartbeat,
                guard=guard,
                is_anew=anew,
            )
            for group in called
        ]
        return dict(zip(called, self._run_each(calls), strict=True))

    def journal_heartbeat(
        self, journal: str, token: int, heartbeat: int, groups: Iterable[str], compared: Mapping[str, str]
    ) -> dict[str, MarkerHeartbeat]:
        """Sets the heartbeat of markers to the journal's, and tells whether Redis's data are those of this token.

        Args:
            journal: Id of the journal.
            token: The caller's token.
            heartbeat: The journal's heartbeat.
            groups: Whose markers.
            compared: By slot group, the ``server`` of an earlier heartbeat whose data the caller has compared with the
                journal by now.

        Returns:
            What each marker says, by group.
        """
        called = list(groups)
        of = {group: (self._own.journal(group), compared.get(group, "")) for group in called}
        calls = [
            journal_heartbeat(journal=key, journal_id=journal, token=token, heartbeat=heartbeat, compared=server)
            for key, server in of.values()
        ]
        return dict(zip(of, self._run_each(calls), strict=True))

    def promote(self, journal: str, token: int, rows: Iterable[Row], hold: str = "") -> PromotedRows:
        """Puts rows into the store, each once, under the ids of their messages.

        Rows of several queues may come in any order. A call of the script has at most ``PROMOTE_COUNT`` rows. With an
        error of Redis some of the rows may be in the store; repeated, they are not put there again.

        Args:
            journal: Id of the journal.
            token: The caller's token.
            rows: The rows.
            hold: For a caller that promotes single rows: name of the hold, as in ``claim_rows``. A row that is neither
                held under it nor in the guard otherwise has the word ``free``.
        """
        by_queue: dict[str, list[Row]] = {}
        for row in rows:
            by_queue.setdefault(row.queue, []).append(row)
        words: dict[int, str] = {}
        for queue, own in by_queue.items():
            for page in pages(own, PROMOTE_COUNT, PROMOTE_BYTES, lambda row: len(row.body)):
                word, *found = self._registry.run(queue, self._promote_call(journal, token, queue, page, hold))
                if word != "promoted":
                    return PromotedRows(word, words)
                words.update(zip((row.seq for row in page), found, strict=True))
        return PromotedRows("promoted", words)

    def claim_rows(self, rows: Iterable[Numbered], hold: str = "") -> dict[int, str]:
        """Claims rows that the caller has taken out of the journal, or holds rows that it is about to bring.

        Repeating a claim changes nothing. A row that the journal has as waiting after this is promoted under a hold
        only if nobody else has pushed, claimed or held it meanwhile, also if it has left the guard since.

        Args:
            rows: The rows.
            hold: Name of a hold, which nobody else has; empty to claim the rows.

        Returns:
            By number of the row: ``claimed`` if no promoter will ever put it into the store; ``held``; or ``pushed`` if
            a promoter has put it into the store.
        """
        words: dict[int, str] = {}
        for group, seqs in self._by_group(rows).items():
            for page in pages(seqs, ROWS):
                call = claim_rows(journal_guard=self._own.journal_guard(group), hold=hold, numbers=page)
                words.update(zip(page, self._client.run(call), strict=True))
            if group and not hold and not self._client.ask("EXISTS", self._own.journal(group)):
                # A promoter that begins to lead at this queue reads its rows after that. Nobody would ever drop these
                # claims.
                self._drop(group, [seq for seq in seqs if words[seq] == "claimed"])
        return words

    def settle_rows(self, journal: str, token: int, rows: Iterable[Numbered]) -> None:
        """Takes rows out of the guard which the journal has marked; those of a promoter that leads no more stay.

        Args:
            journal: Id of the journal.
            token: The caller's token.
            rows: The rows.
        """
        for group, seqs in self._by_group(rows).items():
            for page in pages(seqs, ROWS):
                self._client.run(settle_rows(marker=self._marker(group), of=journal, token=token, numbers=page))

    def pushed(self, queues: Iterable[str] = ()) -> list[int]:
        """Returns the rows that were put into the store and not yet taken out of the guard, such as by a dead promoter.

        They are few while promoters work. Cost O(number of rows in the guard).

        Args:
            queues: Those whose guards are read beside that of all.
        """
        return [seq for group in self._groups(queues) for seq, kind, _ in self._guarded(group) if kind == "p"]

    def prune(self, claimed_before_ms: float, pushed_before_ms: float, queues: Iterable[str] = ()) -> int:
        """Takes old entries out of the guard.

        Args:
            claimed_before_ms: Claimed and held rows leave that became so before. No promoter may have read its rows
                earlier.
            pushed_before_ms: Pushed rows leave that were pushed before. No caller may be about to claim one of them.
            queues: As of ``pushed``.

        Returns:
            Number of rows that left.
        """
        before = {"c": claimed_before_ms, "h": claimed_before_ms, "p": pushed_before_ms}
        count = 0
        for group in self._groups(queues):
            old = [seq for seq, kind, since_ms in self._guarded(group) if since_ms < before[kind]]
            self._drop(group, old)
            count += len(old)
        return count

    def _drop(self, group: str, seqs: Sequence[int]) -> None:
        for page in pages(seqs, ROWS):
            self._client.ask("HDEL", self._own.journal_guard(group), *page)

    def _guarded(self, group: str) -> Iterator[tuple[int, str, float]]:
        for seq, note in self._client.redis.hscan_iter(self._own.journal_guard(group), count=ROWS):
            kind, since_ms = as_text(note)[0], as_text(note)[1:].partition(":")[0]
            yield int(seq), kind, float(since_ms)

    def _groups(self, queues: Iterable[str]) -> list[str]:
        return sorted({ALL, *map(self._keys.slot_group, queues)})

    def _by_group(self, rows: Iterable[Numbered]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(self._keys.slot_group(row.queue), []).append(row.seq)
        return found

    def _run_each(self, calls: Sequence[Call[R]]) -> list[R]:
        return checked(self._client.run_each(calls)[0]) if calls else []

    def _marker(self, queue: str) -> _Marker:
        return _Marker(self._own.journal(queue), self._own.journal_guard(queue))

    def _promote_call(self, journal: str, token: int, queue: str, page: list[Row], hold: str) -> Call[list[str]]:
        return promote(
            marker=self._marker(queue),
            into=self._client.into(queue),
            expire=max(row.expire_ms for row in page),
            of=journal,
            token=token,
            hold=hold,
            offers=((row.seq, row.id, repr(row.due_ms), row.priority, row.body) for row in page),
        )
