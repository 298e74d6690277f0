"""Compares what the journal says is in Redis with what Redis has."""

from collections.abc import Collection, Iterator, Sequence
from time import sleep
from typing import NamedTuple

from celery_ext.journal.store import JournaledStore
from celery_ext.journal.table import Row
from celery_ext.journal.table.rows import WAITING
from celery_ext.journal.upkeep.presence import rows_in_redis
from kombu_delayq.store.types import Waiting

#: Rows, or messages, that are compared at once, and how many ids a page gives as examples.
PAGE, EXAMPLES = 500, 5
#: How long a publisher may take to give Redis the message of a row that it has written, in s.
PUBLISHED_S = 0.5


class Checked(NamedTuple):
    """What a page of a check has found.

    Attributes:
        queue: Name of the queue.
        looked: How many rows, or messages in Redis, it has compared.
        missing: How many messages Redis should have, and has not.
        unknown: How many messages Redis has, and the journal not; only with ``journal="all"``.
        missing_ids: Some ids of them.
        unknown_ids: Some ids of them.
    """

    queue: str
    looked: int
    missing: int = 0
    unknown: int = 0
    missing_ids: tuple[str, ...] = ()
    unknown_ids: tuple[str, ...] = ()


class Looked(NamedTuple):
    """What a page of ``look`` has found.

    Attributes:
        looked: How many rows it has compared.
        missing: How many rows are noted as missing.
    """

    looked: int
    missing: int


def check(store: JournaledStore, *, queues: Collection[str] = ()) -> Iterator[Checked]:
    """Compares both sides, page by page, while messages come and go. Changes nothing.

    Args:
        store: The store.
        queues: Only these queues; all by default.

    Yields:
        What each page has found: first all pages of rows, then, with ``journal="all"``, those of messages in Redis.
    """
    for queue, rows in _given(store, queues):
        ids = [row.id for row in _missing(store, queue, rows)]
        yield Checked(queue, len(rows), missing=len(ids), missing_ids=tuple(ids[:EXAMPLES]))
    if store.options.journal == "all":
        for queue in store.redis_alone.queues.names():
            if not queues or queue in queues:
                yield from _unknown(store, queue)


def look(store: JournaledStore, queues: Collection[str] = (), until: int | None = None) -> Iterator[Looked]:
    """Notes rows as missing whose messages Redis should have, and has not; a restore lets them wait again.

    A failover, or a restart of a Redis that writes to its disk each second, loses what was written last. If a message
    is missing that is not due yet, so may be others that were written since the latest beat and have come due by now.
    Whether those were delivered nobody knows, so they count as missing, too.

    Args:
        store: The store.
        queues: Only these queues; all by default.
        until: Number of the last row that was written when Redis may have lost data; by default the latest.

    Yields:
        What has been compared; the last one has what is missing. Nothing is noted before.
    """
    journal, absent = store.journal, list[Row]()
    until = journal.last_number() if until is None else until
    for queue, rows in _given(store, queues):
        absent += _missing(store, queue, rows)
        yield Looked(len(rows), 0)
    if not absent:
        return
    sleep(min(PUBLISHED_S, store.options.lease_ttl / 4))
    noted = set[int]()
    after, now_ms = journal.written_before(), store.now_ms()
    overdue = [row for row in journal.written(after, until, now_ms) if not queues or row.queue in queues]
    for queue in sorted({row.queue for row in absent}):
        noted.update(row.seq for row in _missing(store, queue, [row for row in absent if row.queue == queue]))
    if noted:
        for queue in sorted({row.queue for row in overdue}):
            noted.update(row.seq for row in _absent(store, queue, [row for row in overdue if row.queue == queue]))
        journal.note_missing(noted, now_ms)
    yield Looked(0, len(noted))


def _given(store: JournaledStore, queues: Collection[str]) -> Iterator[tuple[str, list[Row]]]:
    """Yields pages of rows that are not due yet, and whose messages Redis should have."""
    for queue in store.journal.queues_in_redis():
        if queues and queue not in queues:
            continue
        from_ms = store.now_ms()  # what is due by now leaves
        after: tuple[float, int] | None = None
        while rows := store.journal.offered(queue, after, from_ms, count=PAGE):
            yield queue, rows
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


def _unknown(store: JournaledStore, queue: str) -> Iterator[Checked]:
    after = None
    while True:
        page = store.redis_alone.scan.browse(queue, after, count=PAGE)
        absent = _not_noted(store, page.messages)
        if absent:  # a message that left meanwhile has lost its row
            still = {seq_key(one) for one in absent}
            found = store.redis_alone.lookup.get([queue], list(dict.fromkeys(one.id for one in absent)))
            absent = [one for own in found.values() for one in own if seq_key(one) in still]
            absent = _not_noted(store, absent)
        if page.messages:
            ids = tuple(one.id for one in absent[:EXAMPLES])
            yield Checked(queue, len(page.messages), unknown=len(absent), unknown_ids=ids)
        if not page.more:
            return
        after = page


def seq_key(message: Waiting) -> tuple[str, float, bytes | None]:
    """Returns what tells a message from others of its id."""
    return message.id, message.due_ms, message.body


def _not_noted(store: JournaledStore, messages: Sequence[Waiting]) -> list[Waiting]:
    ids = list(dict.fromkeys(one.id.partition("~")[0] for one in messages) | dict.fromkeys(one.id for one in messages))
    known = {row.body for row in store.journal.get(ids, None)}
    return [one for one in messages if one.body not in known]
