"""No operation reads the whole table: PostgreSQL and SQLite plan an index for each statement."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import pytest
from sqlalchemy import event, text

from celery_ext.journal.journal import Journal
from tests.support.journal.additions import DUE_MS, addition

ROWS, QUEUES = 20_000, 20
HOUR_MS = 3_600_000

#: By name: what is done to a journal with many rows.
OPERATIONS: dict[str, Callable[[Journal], object]] = {
    "add": lambda journal: journal.add([addition(ROWS + 1)]),
    "add offered": lambda journal: journal.add([addition(ROWS + 2)], offered=True),
    "get": lambda journal: journal.get([f"id-{number}" for number in range(0, ROWS, 200)]),
    "rows": lambda journal: journal.rows(range(1, 300)),
    "browse": lambda journal: journal.browse("queue-3"),
    "page": lambda journal: journal.browse("queue-3", (DUE_MS + HOUR_MS, 5), to_ms=DUE_MS + 9 * HOUR_MS),
    "count": lambda journal: journal.count("queue-3", DUE_MS + 1, DUE_MS + 200.5 * HOUR_MS),
    "counts": lambda journal: journal.counts(DUE_MS + 1, DUE_MS + 200.5 * HOUR_MS),
    "due_counts": lambda journal: journal.due_counts(["queue-3"], [DUE_MS + step * HOUR_MS / 3 for step in range(60)]),
    "queues": lambda journal: journal.queues(),
    "boundaries": lambda journal: journal.boundaries("queue-3", [0, 300, 600, 900], DUE_MS + HOUR_MS / 2),
    "next_due": lambda journal: (journal.next_due(), journal.next_due("queue-3")),
    "promotable": lambda journal: journal.promotable(inf, 500),
    "following promotable": lambda journal: journal.promotable(inf, 500, (DUE_MS + HOUR_MS, 5)),
    "mark": lambda journal: journal.mark(range(1, 301)),
    "delete": lambda journal: journal.delete(["id-500", "id-501"]),
    "delete_rows": lambda journal: journal.delete_rows([600, 601]),
    "replace": lambda journal: journal.replace([(700, addition(700, DUE_MS))]),
    "purge": lambda journal: journal.purge("queue-5", 50),
    "queues_in_redis": lambda journal: journal.queues_in_redis(),
    "offered": lambda journal: journal.offered("queue-7"),
    "trim": lambda journal: journal.trim(0.0, 10),
    "lost": lambda journal: (journal.end_epoch(0.0), journal.lost(1, "queue-7"), journal.count_lost()),
    "written": lambda journal: journal.written(ROWS - 300, ROWS, inf),
    "missing": lambda journal: (
        journal.note_missing([ROWS - 4], 0.0),
        journal.queues_missing(),
        journal.missing("queue-7"),
        journal.count_missing(),
        journal.missing_ms(),
    ),
    "wait_again": lambda journal: journal.wait_again([ROWS, ROWS - 1]),
    "keep": lambda journal: journal.keep([ROWS - 2, ROWS - 3]),
}


@contextmanager
def _statements(journal: Journal) -> Iterator[list[tuple[str, Any]]]:
    """Collects the statements about messages that are executed, with their parameters."""
    found: list[tuple[str, Any]] = []

    def note(*args: Any) -> None:
        _, _, statement, parameters, _, is_many = args
        if "delayq_messages" in statement and not statement.startswith("INSERT"):
            found.append((statement, parameters[0] if is_many else parameters))

    event.listen(journal.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(journal.engine, "before_cursor_execute", note)


def _scans(plan: Any) -> Iterator[str]:
    if plan.get("Node Type") == "Seq Scan" and plan.get("Relation Name") == "delayq_messages":
        yield json.dumps(plan)
    for part in plan.get("Plans", ()):
        yield from _scans(part)


def _whole(connection: Any, statement: str, parameters: Any) -> list[str]:
    """Returns the parts of a statement's plan that go through the whole table."""
    if connection.dialect.name == "postgresql":
        [[plan]] = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalars()
        return list(_scans(plan["Plan"]))
    lines = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
    # SCAN with an index is an ordered walk that LIMIT ends, or a jump to the least value.
    return [line.detail for line in lines if line.detail == "SCAN delayq_messages"]


@pytest.fixture
def filled(journal: Journal) -> Journal:
    """A journal with many rows, some of them given to Redis."""
    insert = """
        INSERT INTO delayq_messages (seq, queue, id, due_ms, priority, expire_ms, state, digest, body)
        WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
        SELECT n, 'queue-' || n % :queues, 'id-' || n, :due + n * 60000.0, 0, 0, CASE WHEN n % 10 = 0 THEN 1 ELSE 0 END,
            :digest, :digest FROM numbers"""
    with journal.engine.begin() as connection:
        given = {"rows": ROWS, "queues": QUEUES, "due": DUE_MS, "digest": b"digest"}
        connection.execute(text(insert), given)
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT setval(pg_get_serial_sequence('delayq_messages', 'seq'), :rows)"), given)
        connection.execute(text("ANALYZE delayq_messages"))
    return journal


def test_no_operation_reads_the_whole_table(filled: Journal) -> None:
    """Each statement of each operation uses an index, so that ten million rows slow none down."""
    whole = []
    for name, act in OPERATIONS.items():
        with _statements(filled) as statements:
            act(filled)
        with filled.engine.connect() as connection:
            whole += [(name, part) for one in statements for part in _whole(connection, *one)]
    assert whole == []
