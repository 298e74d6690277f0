"""Compares Redis with the journal, fills a Redis again that has lost its data, and trims."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from time import sleep
from typing import NamedTuple

from celery_ext.journal.epochs import Epoch
from celery_ext.journal.leadership import LOST
from celery_ext.journal.promotion import Row
from celery_ext.journal.rows import Addition
from celery_ext.journal.schema import WAITING
from celery_ext.journal.state import fault_of, marker_fault
from celery_ext.journal.store import JournaledStore
from kombu_delayq.errors import InvalidOptions
from kombu_delayq.message import DEAD_LETTER, pages, to_json, too_late

#: Most ids that are looked up in one call.
IDS = 200
#: A queue, and some of its rows.
QueuePage = tuple[str, list[Row]]


def rows_in_redis(store: JournaledStore, queue: str, rows: Sequence[Row]) -> set[int]:
    """Returns the numbers of those rows of a queue whose message waits in Redis, byte for byte."""
    found: set[int] = set()
    for part in pages(rows, IDS):
        waiting = store.redis_alone.lookup.get([queue], list(dict.fromkeys(row.id for row in part)))
        for row in part:
            if any(one.body == row.body and one.priority == row.priority for one in waiting.get(row.id, ())):
                found.add(row.seq)
    return found


#: Rows that are compared at once, and how many ids a page gives as examples.
PAGE, EXAMPLES = 500, 5
#: How long a publisher may take to give Redis the message of a row that it has written, in s.
PUBLISHED_S = 0.5


class Checked(NamedTuple):
    """What a page of a check has found.

    Attributes:
        queue: Name of the queue.
        looked: How many rows it has compared.
        missing: How many messages Redis should have, and has not; in the last page of ``find_missing``, of all queues.
        missing_ids: Some ids of them.
    """

    queue: str
    looked: int
    missing: int = 0
    missing_ids: tuple[str, ...] = ()


def check(store: JournaledStore, *, queues: Collection[str] = ()) -> Iterator[Checked]:
    """Looks whether Redis has what it was given, page by page, while messages come and go. Changes nothing.

    Args:
        store: The store.
        queues: Only these queues; all by default.

    Yields:
        What each page of rows has found.
    """
    for queue, rows in _given(store, queues):
        ids = [row.id for row in _missing(store, queue, rows)]
        yield Checked(queue, len(rows), len(ids), tuple(ids[:EXAMPLES]))


def find_missing(store: JournaledStore, queues: Collection[str] = (), until: int | None = None) -> Iterator[Checked]:
    """Notes rows as missing whose messages Redis should have, and has not; a restore lets them wait again.

    A failover, or a restart of a Redis that writes to its disk each second, loses what was written last. If a message
    is missing that is not due yet, others may be that were written since the latest heartbeat and have come due.
    Nobody knows whether those were delivered, so they count as missing, too.

    Args:
        store: The store.
        queues: Only these queues; all by default.
        until: Number of the last row that was written when Redis may have lost data; by default the latest.

    Yields:
        What has been compared; the last one has what is missing. Nothing is noted before.
    """
    missing: list[Row] = []
    yield from _find(store, queues, until, missing)
    if missing:
        store.journal.note_missing([row.seq for row in missing], store.now_ms())
    yield Checked("", 0, len(missing))


def _find(store: JournaledStore, queues: Collection[str], until: int | None, missing: list[Row]) -> Iterator[Checked]:
    """Yields what has been compared, and adds the rows of ``find_missing`` to a list at the end."""
    journal, absent = store.journal, list[Row]()
    until = journal.last_number() if until is None else until
    for queue, rows in _given(store, queues):
        absent += _missing(store, queue, rows)
        yield Checked(queue, len(rows))
    if not absent:
        return
    sleep(min(PUBLISHED_S, store.options.lease_ttl / 4))
    overdue = journal.written(journal.written_before(), until, store.now_ms())
    missing += [row for queue, rows in _by_queue(absent) for row in _missing(store, queue, rows)]
    if missing:
        overdue = [row for row in overdue if not queues or row.queue in queues]
        missing += [row for queue, rows in _by_queue(overdue) for row in _absent(store, queue, rows)]


def _by_queue(rows: Iterable[Row]) -> list[QueuePage]:
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.queue].append(row)
    return sorted(found.items())


def _given(store: JournaledStore, queues: Collection[str]) -> Iterator[QueuePage]:
    """Yields pages of rows that are not due yet, and whose messages Redis should have."""
    for queue in _among(queues, store.journal.queues_in_redis()):
        from_ms = store.now_ms()  # what is due by now leaves
        for rows in _pages(partial(store.journal.offered, queue, from_ms=from_ms, count=PAGE)):
            yield queue, rows


def _among(wanted: Collection[str], queues: Iterable[str]) -> list[str]:
    return [queue for queue in queues if not wanted or queue in wanted]


def _pages(read: Callable[..., list[Row]]) -> Iterator[list[Row]]:
    """Yields pages of rows until there are no more; ``read`` is given due time and number of the row before."""
    after: tuple[float, int] | None = None
    while rows := read(after=after):
        yield rows
        after = rows[-1].due_ms, rows[-1].seq


def _missing(store: JournaledStore, queue: str, rows: Sequence[Row]) -> list[Row]:
    absent = _absent(store, queue, rows)
    if absent:
        # Meanwhile some may have been cancelled, changed, or come due: those are not missing.
        seqs, now_ms = [row.seq for row in absent], store.now_ms()
        still = [row for row in store.journal.rows(seqs, None) if row.state > WAITING and row.due_ms > now_ms]
        absent = _absent(store, queue, still)
    return absent


def _absent(store: JournaledStore, queue: str, rows: Sequence[Row]) -> list[Row]:
    present = rows_in_redis(store, queue, rows)
    return [row for row in rows if row.seq not in present]


#: What to do with messages whose due time is past: run them now, leave them away, or put them among the dead letters.
OVERDUE = ("run", "skip", "dead-letter")


class Restored(NamedTuple):
    """What a page of a restore has done, in messages.

    Attributes:
        looked: How many rows of lost epochs it has looked at.
        restored: How many wait in the journal again; they are promoted like others.
        skipped: How many were overdue and left away.
        dead_letters: How many were overdue and went to the dead letters.
        in_redis: How many Redis had still.
        unsure: How many of those that Redis had no more were due before the loss was noticed: nobody knows whether it
            had delivered them.
        unsure_from_ms: The least due time of these, ms since the epoch.
    """

    looked: int
    restored: int
    skipped: int
    dead_letters: int
    in_redis: int
    unsure: int = 0
    unsure_from_ms: float = inf


def restore(
    store: JournaledStore,
    *,
    queues: Collection[str] = (),
    from_ms: float = -inf,
    overdue: str = "run",
    dead_letters: str | None = None,
    dry_run: bool = False,
) -> Iterator[Restored]:
    """Lets messages wait again that Redis has lost: those due after the watermark of then, and not in Redis now.

    So do those that ``find_missing`` has noted as missing.

    Killed anywhere, it finds what is left when it runs again. A loss counts as restored after the last page, if neither
    queues nor times narrowed the restore.

    Args:
        store: The store.
        queues: Only these queues; all by default.
        from_ms: Only messages that are due from then on, ms since the epoch.
        overdue: One of ``OVERDUE``.
        dead_letters: Queue for overdue messages, by default the option ``dead_letter_queue``.
        dry_run: Whether to count only, also what ``notice`` and ``find_missing`` would note now.

    Yields:
        What each page has done.

    Raises:
        InvalidOptions: There is no such ``overdue``.
    """
    if overdue not in OVERDUE:
        raise InvalidOptions(f"overdue is one of {', '.join(OVERDUE)}, not {overdue!r}")
    letters = dead_letters or store.options.dead_letter_queue
    journal = store.journal
    epochs = journal.unrestored()
    for queue, rows, noticed_ms in _lost(store, epochs, queues, from_ms):
        yield _restore_page(store, queue, rows, noticed_ms, overdue, letters, dry_run)
    if epochs and not queues and from_ms == -inf and not dry_run:
        journal.finish_restore([one.epoch for one in epochs], store.now_ms())
    noticed_ms = journal.missing_ms()
    for queue, rows in _noted_missing(store, queues, from_ms):
        yield _restore_page(store, queue, rows, noticed_ms, overdue, letters, dry_run)
    for queue, rows in _unnoted(store, queues, from_ms) if dry_run else ():
        yield _restore_page(store, queue, rows, store.now_ms(), overdue, letters, dry_run)


def count_noted(store: JournaledStore, *, queues: Collection[str] = (), from_ms: float = -inf) -> int:
    """Counts the rows that ``restore`` looks at. Takes longer the more there is. The arguments are those of it."""
    journal = store.journal
    epochs, counts = journal.unrestored(), journal.count_lost(queues, from_ms)
    return sum(counts[one.epoch] for one in epochs) + journal.count_missing(queues, from_ms)


def _lost(
    store: JournaledStore, epochs: Collection[Epoch], queues: Collection[str], from_ms: float
) -> Iterator[tuple[str, list[Row], float]]:
    """Yields pages of the rows of lost epochs, each with the time at which its loss was noticed."""
    lost = store.journal.lost_in() if epochs else {}
    for one in epochs:
        for queue, given in lost.get(one.epoch, ()):
            if not queues or queue in queues:
                for rows in _pages(partial(store.journal.lost, one.epoch, queue, from_ms, count=PAGE, given=given)):
                    yield queue, rows, one.ended_ms


def _noted_missing(store: JournaledStore, queues: Collection[str], from_ms: float) -> Iterator[QueuePage]:
    for queue in _among(queues, store.journal.queues_missing()):
        for rows in _pages(partial(store.journal.missing, queue, from_ms, count=PAGE)):
            yield queue, rows


def _unnoted(store: JournaledStore, queues: Collection[str], from_ms: float) -> Iterator[QueuePage]:
    """Yields pages of rows that nobody has noted yet as lost or missing."""
    journal, epoch, watermarks = store.journal, store.journal.epoch(), store.journal.watermarks()
    known = _among(queues, journal.queues_in_redis())
    lost = _lost_queues(store, known)
    for queue in sorted(lost):
        least_ms = max(from_ms, watermarks.of(queue))
        for rows in _pages(partial(journal.offered, queue, from_ms=least_ms, count=PAGE)):
            yield queue, [row for row in rows if row.state <= epoch]  # others were published since the loss
    if others := [queue for queue in known if queue not in lost]:
        missing: list[Row] = []
        for _ in _find(store, others, None, missing):
            pass
        yield from _by_queue(row for row in missing if row.due_ms >= from_ms)


def _lost_queues(store: JournaledStore, queues: Collection[str]) -> set[str]:
    """Returns the queues beside whose markers Redis has lost data, if ``notice`` would say so."""
    promotion, heartbeat = store.promotion, store.journal.heartbeat()  # before the markers
    if fault_of(store, heartbeat) not in LOST:
        return set()
    groups = set(map(promotion.group_of, queues))
    gone = {one for one in groups if marker_fault(promotion.marker(one), store.journal.id, heartbeat) in LOST}
    return {queue for queue in queues if promotion.group_of(queue) in gone}


def _restore_page(
    store: JournaledStore,
    queue: str,
    rows: Sequence[Row],
    noticed_ms: float,
    overdue: str,
    letters: str,
    dry_run: bool,
) -> Restored:
    present, now_ms, journal = rows_in_redis(store, queue, rows), store.now_ms(), store.journal
    lost = [row for row in rows if row.seq not in present]
    late = [row for row in lost if row.due_ms <= now_ms and overdue != "run"]
    again = [row.seq for row in lost if row.due_ms > now_ms or overdue == "run"]
    unsure_ms = [row.due_ms for row in lost if row.due_ms < noticed_ms]
    name = "skipped" if overdue == "skip" else "dead_letters"
    done = Restored(len(rows), len(again), 0, 0, len(present), len(unsure_ms), min(unsure_ms, default=inf))
    done = done._replace(**{name: len(late)})
    if dry_run:
        return done
    if done.dead_letters:
        # The letters wait in the journal before their messages leave it. Repeated, they are the same rows.
        journal.add([_letter(row, now_ms, letters) for row in late])
        store.queues.note_dead_letters(letters, 0)  # they are shown, even if this process dies before it counts them
    gone = len(journal.delete_rows([row.seq for row in late], None))  # another restore may have been faster
    if done.dead_letters and gone:
        store.queues.note_dead_letters(letters, gone)
    journal.keep(present)
    return done._replace(restored=len(journal.wait_again(again)), **{name: gone})


def _letter(row: Row, now_ms: float, queue: str) -> Addition:
    late_ms = now_ms - row.due_ms
    letter = too_late(json.loads(row.body), late_ms, 0.0, row.queue, queue)
    why = letter["properties"][DEAD_LETTER]
    why["error"] = f"Redis had lost it, and it was due {late_ms / 1000:.1f} s before it was restored"
    # Due now: with the due time that has passed, it would itself be too late for ``max_lateness``.
    return Addition(queue, row.id, now_ms, row.priority, to_json(letter).encode(), 0, b"late %d" % row.seq)


def trim(store: JournaledStore) -> Iterator[int]:
    """Deletes rows of messages that left Redis more than ``journal_retention`` ago. Rows that may be lost stay.

    Returns:
        The number of rows deleted, page by page, as that happens.
    """
    retention_ms = store.options.journal_retention * 1000
    return iter(lambda: store.journal.trim(retention_ms), 0)
