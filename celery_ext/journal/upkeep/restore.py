"""Fills a Redis again that has lost its data."""

import json
from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import NamedTuple

from celery_ext.journal.store import JournaledStore
from celery_ext.journal.table import Addition, Row
from celery_ext.journal.upkeep.presence import rows_in_redis
from kombu_delayq.errors import InvalidOptions
from kombu_delayq.message.fields import to_json
from kombu_delayq.message.letters import DEAD_LETTER, too_late

#: What to do with messages whose due time is past: run them now, leave them away, or put them among the dead letters.
OVERDUE = ("run", "skip", "dead-letter")
#: Rows that are looked at at once.
PAGE = 500


class Restored(NamedTuple):
    """What a page of a restore has done, in messages.

    Attributes:
        looked: How many rows of lost epochs it has looked at.
        restored: How many wait in the journal again; they are promoted like others.
        skipped: How many were overdue and left away.
        dead_letters: How many were overdue and went to the dead letters.
        in_redis: How many Redis had still.
    """

    looked: int
    restored: int
    skipped: int
    dead_letters: int
    in_redis: int


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

    So do those that ``look`` has noted as missing.

    Killed anywhere, it finds what is left when it runs again. A loss counts as restored after the last page, if neither
    queues nor times narrowed the restore.

    Args:
        store: The store.
        queues: Only these queues; all by default.
        from_ms: Only messages that are due from then on, ms since the epoch.
        overdue: One of ``OVERDUE``.
        dead_letters: Queue for overdue messages, by default the option ``dead_letter_queue``.
        dry_run: Whether to count only.

    Yields:
        What each page has done.

    Raises:
        InvalidOptions: There is no such ``overdue``.
    """
    if overdue not in OVERDUE:
        raise InvalidOptions(f"overdue is one of {', '.join(OVERDUE)}, not {overdue!r}")
    letters = dead_letters or store.options.dead_letter_queue
    journal = store.journal
    for lost in journal.unrestored():
        for queue, given in journal.lost_in(lost.epoch):
            if queues and queue not in queues:
                continue
            after: tuple[float, int] | None = None
            while rows := journal.lost(lost.epoch, queue, from_ms, after, PAGE, given):
                yield _restore_page(store, queue, rows, overdue, letters, dry_run)
                after = rows[-1].due_ms, rows[-1].seq
        if not queues and from_ms == -inf and not dry_run:
            journal.finish_restore(lost.epoch, store.now_ms())
    for queue in journal.queues_missing():
        if queues and queue not in queues:
            continue
        after = None
        while rows := journal.missing(queue, from_ms, after, PAGE):
            yield _restore_page(store, queue, rows, overdue, letters, dry_run)
            after = rows[-1].due_ms, rows[-1].seq


def _restore_page(
    store: JournaledStore, queue: str, rows: Sequence[Row], overdue: str, letters: str, dry_run: bool
) -> Restored:
    present, now_ms, journal = rows_in_redis(store, queue, rows), store.now_ms(), store.journal
    lost = [row for row in rows if row.seq not in present]
    late = [row for row in lost if row.due_ms <= now_ms and overdue != "run"]
    again = [row.seq for row in lost if row.due_ms > now_ms or overdue == "run"]
    skipped, buried = (len(late), 0) if overdue == "skip" else (0, len(late))
    done = Restored(len(rows), len(again), skipped, buried, len(present))
    if dry_run:
        return done
    if buried:
        # The letters wait in the journal before their messages leave it. Repeated, they are the same rows.
        journal.add([_letter(row, now_ms, letters) for row in late])
        store.queues.note_dead_letters(letters)
    journal.delete_rows([row.seq for row in late], None)
    journal.keep(present)
    return done._replace(restored=len(journal.wait_again(again)))


def _letter(row: Row, now_ms: float, queue: str) -> Addition:
    late_ms = now_ms - row.due_ms
    letter = too_late(json.loads(row.body), late_ms, 0.0, row.queue, queue)
    why = letter["properties"][DEAD_LETTER]
    why["error"] = f"Redis had lost it, and it was due {late_ms / 1000:.1f} s before it was restored"
    return Addition(queue, row.id, row.due_ms, row.priority, to_json(letter).encode(), 0, b"late %d" % row.seq)
