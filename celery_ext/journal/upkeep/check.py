"""Compares what the journal says is in Redis with what Redis has."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from celery_ext.journal.store import JournaledStore
from celery_ext.journal.table import Row
from celery_ext.journal.upkeep.presence import rows_in_redis
from kombu_delayq.store.types import Waiting

#: Rows, or messages, that are compared at once, and how many ids a page gives as examples.
PAGE, EXAMPLES = 500, 5


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


def check(store: JournaledStore, *, queues: Collection[str] = ()) -> Iterator[Checked]:
    """Compares both sides, page by page, while messages come and go. Changes nothing.

    Args:
        store: The store.
        queues: Only these queues; all by default.

    Yields:
        What each page has found: first all pages of rows, then, with ``journal="all"``, those of messages in Redis.
    """
    journal = store.journal
    for queue in journal.queues_in_redis():
        if queues and queue not in queues:
            continue
        from_ms = store.now_ms()  # what is due by now leaves
        after: tuple[float, int] | None = None
        while rows := journal.offered(queue, after, from_ms, count=PAGE):
            yield _missing(store, queue, rows)
            after = rows[-1].due_ms, rows[-1].seq
    if store.options.journal == "all":
        for queue in store.redis_alone.queues.names():
            if not queues or queue in queues:
                yield from _unknown(store, queue)


def _missing(store: JournaledStore, queue: str, rows: Sequence[Row]) -> Checked:
    absent = _absent(store, queue, rows)
    if absent:
        # Meanwhile some may have been cancelled, changed, or come due: those are not missing.
        seqs, now_ms = [row.seq for row in absent], store.now_ms()
        still = [row for row in store.journal.rows(seqs, None) if row.state and row.due_ms > now_ms]
        absent = _absent(store, queue, still)
    return Checked(queue, len(rows), missing=len(absent), missing_ids=tuple(row.id for row in absent[:EXAMPLES]))


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
