"""Moves a journal from one database to another, such as from SQLite to PostgreSQL."""

from collections import Counter
from collections.abc import Iterator
from time import sleep
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text, update
from sqlalchemy import literal_column as raw

from celery_ext.journal.table.access import delete_where, fitting
from celery_ext.journal.table.database import schema
from celery_ext.journal.table.database.statements import GAP, among, is_postgres, number_from
from celery_ext.journal.table.facts import facts_in, set_fact
from celery_ext.journal.table.hours import HourKey, note
from celery_ext.journal.table.journal import Journal
from celery_ext.journal.table.rows import WAITING
from kombu_delayq.errors import JournalInUse, OtherJournal

#: Rows of a page, which is one transaction in the target.
PAGE = 1_000
#: Promoters beat about once a second; how long to look for one, in s.
WATCH_S = 3.0
#: Name of the fact in the target up to which number rows have come.
MOVED = "moved_to"

_messages = schema.messages
_facts = schema.facts
#: What is copied as it is. The facts ``version`` and ``moved_to`` are the target's own.
_COPIED_FACTS = ("id", "guard", "epoch", "beat", "promoted", "restored")


def move(source: Journal, target: Journal, *, in_use: bool = False, watch_s: float = WATCH_S) -> Iterator[int]:
    """Copies a journal, with its id, its epochs and its watermarks. The source stays as it is.

    If the run is cut off, another goes on. A run after one that has ended brings what has changed in the source since:
    new rows come, rows that have left it leave, and rows that its promoter has marked are marked. What was done in the
    target in the meantime stays.

    Args:
        source: Where the rows are.
        target: A journal without rows, or one to which this source was moved before.
        in_use: Whether somebody may go on to write to the source.
        watch_s: How long to watch for others that write to the source, in s.

    Yields:
        How many rows a page has brought or changed.

    Raises:
        OtherJournal: The target has rows of another journal, or is the source.
        JournalInUse: Somebody promotes or publishes to the source, and ``in_use`` is false.
    """
    begin = _adopt(source, target)
    if not in_use:
        _watch(source, watch_s)
    until = source.write(_last_number)
    yield from _follow(source, target, begin)
    yield from _bring(source, target, begin, until)
    _copy_facts(source, target)


def _adopt(source: Journal, target: Journal) -> int:
    """Makes the target the source's. Returns up to which number it has rows of the source."""
    if source.url == target.url:
        raise OtherJournal(f"{source.url} cannot be moved to itself")
    with source.reading() as reading:
        known = facts_in(reading)

    def work(connection: Connection) -> int:
        facts = facts_in(connection)
        if MOVED in facts and facts["id"] == known["id"]:
            return int(facts[MOVED])
        if connection.scalar(select(_messages.c.seq).limit(1)) is not None or MOVED in facts:
            raise OtherJournal(f"{target.url} has messages of another journal: name a database without a journal")
        for name in _COPIED_FACTS:
            set_fact(connection, name, known[name])
        connection.execute(insert(_facts).values(name=MOVED, value="0"))
        return 0

    return target.write(work)


def _watch(source: Journal, watch_s: float) -> None:
    before = source.beat(), source.write(_last_number)
    sleep(watch_s)
    beat, number = source.beat(), source.write(_last_number)
    if beat != before[0]:
        raise JournalInUse(f"somebody promotes messages from {source.url}: stop all workers and `delayq journal run`")
    if number != before[1]:
        raise JournalInUse(f"somebody publishes to {source.url}: stop publishers, or move the journal in use and again")


def _last_number(connection: Connection) -> int:
    """Returns the greatest number of a row, when no transaction is at hand that could still commit a lesser one."""
    if is_postgres(connection):
        connection.execute(text(f"LOCK TABLE {_messages.name} IN SHARE MODE"))
    return connection.scalar(select(func.max(_messages.c.seq))) or 0


def _follow(source: Journal, target: Journal, until: int) -> Iterator[int]:
    """Brings to rows of the target what has happened to them in the source."""
    after = 0
    while states := _states(target, after, until):
        after = max(states)
        known = _states_of(source, list(states))
        gone = [seq for seq in states if seq not in known]
        marked = {seq: known[seq] for seq in states if known.get(seq, WAITING) > states[seq] == WAITING}

        def work(connection: Connection, gone: list[int] = gone, marked: dict[int, int] = marked) -> int:
            left = delete_where(connection, among(connection, _messages.c.seq, gone)) if gone else []
            return len(left) + _mark(connection, marked)

        if gone or marked:
            yield target.write(work)


def _bring(source: Journal, target: Journal, after: int, until: int) -> Iterator[int]:
    while rows := _page(source, after, until):
        after = rows[-1]["seq"]

        def work(connection: Connection, rows: list[dict[str, Any]] = rows, after: int = after) -> int:
            connection.execute(insert(_messages), rows)
            note(connection, Counter(HourKey.of(row["queue"], row["state"], row["due_ms"]) for row in rows))
            number_from(connection, after + GAP)
            set_fact(connection, MOVED, str(after))
            return len(rows)

        yield target.write(work)


def _mark(connection: Connection, states: dict[int, int]) -> int:
    changes = Counter[HourKey]()
    found = select(_messages.c.seq, _messages.c.queue, _messages.c.due_ms).with_for_update()
    waiting = found.where(among(connection, _messages.c.seq, list(states)), schema.is_waiting)
    rows = list(connection.execute(waiting)) if states else []
    for seq, queue, due_ms in rows:
        changes[HourKey.of(queue, WAITING, due_ms)] -= 1
        changes[HourKey.of(queue, states[seq], due_ms)] += 1
    if rows:
        changed = update(_messages).where(_messages.c.seq == bindparam("number")).values(state=bindparam("epoch"))
        connection.execute(changed, [{"number": seq, "epoch": states[seq]} for seq, _, _ in rows])
    note(connection, changes)
    return len(rows)


def _states(journal: Journal, after: int, until: int) -> dict[int, int]:
    found = select(_messages.c.seq, _messages.c.state).where(_messages.c.seq > after, _messages.c.seq <= until)
    with journal.reading() as connection:
        return {row.seq: row.state for row in connection.execute(found.order_by(_messages.c.seq).limit(PAGE))}


def _states_of(journal: Journal, seqs: list[int]) -> dict[int, int]:
    found = select(_messages.c.seq, _messages.c.state)
    with journal.reading() as connection:
        return {row.seq: row.state for row in connection.execute(found.where(among(connection, _messages.c.seq, seqs)))}


def _page(journal: Journal, after: int, until: int) -> list[dict[str, Any]]:
    where = [_messages.c.seq > after, _messages.c.seq <= until]
    found = select(_messages).where(*where).order_by(_messages.c.seq)
    with journal.reading() as connection:
        fits = fitting(connection, [_messages.c.seq], where, PAGE)
        return [dict(row) for row in connection.execute(found.limit(fits)).mappings()]


def _copy_facts(source: Journal, target: Journal) -> None:
    """Copies facts, watermarks and epochs, unless a promoter works in the target already."""
    with source.reading() as connection:
        facts = facts_in(connection)
        tables = {
            each: [dict(row) for row in connection.execute(select(each)).mappings()]
            for each in (schema.watermarks, schema.epochs)
        }

    def work(connection: Connection) -> None:
        if int(facts_in(connection)["beat"]) > int(facts["beat"]):
            return
        for name in _COPIED_FACTS:
            set_fact(connection, name, facts[name])
        for each, rows in tables.items():
            connection.execute(delete(each).where(raw("1 = 1")))
            if rows:
                connection.execute(insert(each), rows)

    target.write(work)
