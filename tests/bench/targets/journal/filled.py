"""A journal in PostgreSQL with any number of rows, made by the database itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from time import time

from sqlalchemy import text

from celery_ext.journal.table import Journal
from celery_ext.journal.table.database import schema
from tests.bench.targets.load import BODY_BYTES, HOUR_MS, message
from tests.support.servers.postgres import PrivatePostgres

QUEUE = "bench"
#: As Debian has it, but for memory that fits the machine of a database. A commit waits for the disk.
SETTINGS = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "2GB", "max_wal_size": "8GB"}

#: Rows of a queue, evenly over a time, and what is counted of them.
_ROWS = """
INSERT INTO delayq_messages (queue, id, due_ms, priority, expire_ms, state, digest, body)
SELECT :queue, md5(:name || n), CAST(:from_ms AS double precision) + n * CAST(:step_ms AS double precision), 0, 0, 0,
       decode(md5(:name || n), 'hex'), convert_to(replace(:body, '#', md5(:name || n)), 'UTF8')
FROM generate_series(1, :count) AS n
"""
_COUNTS = """
INSERT INTO delayq_counts (queue, offered, hour, rows)
SELECT queue, false, CAST(floor(due_ms / :hour_ms) AS bigint), count(*)
FROM delayq_messages WHERE state = 0 GROUP BY 1, 3
"""


@contextmanager
def postgres() -> Iterator[PrivatePostgres]:
    """A server of its own."""
    with PrivatePostgres(**SETTINGS) as server:
        yield server


def id_of(number: int) -> str:
    """Returns the id of one of the later rows, from 1 on."""
    return md5(b"later%d" % number, usedforsecurity=False).hexdigest()


def fill(journal: Journal, soon: int, later: int) -> None:
    """Makes waiting rows of 1 KB: some are due within minutes, the others within a year from then."""
    now_ms = time() * 1000
    body = message("#", BODY_BYTES - 4 * 31)  # the database puts the id of each row in place of the mark
    with journal.engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("ALTER TABLE delayq_messages DROP CONSTRAINT delayq_messages_once"))
        for index in schema.indexes:
            index.drop(connection)
        for name, count, from_ms, span_ms in (
            ("soon", soon, now_ms + HOUR_MS / 6, HOUR_MS / 6),
            ("later", later, now_ms + 24 * HOUR_MS, 365 * 24 * HOUR_MS),
        ):
            given = {"queue": QUEUE, "name": name, "count": count, "from_ms": from_ms, "body": body}
            connection.execute(text(_ROWS), {**given, "step_ms": span_ms / max(count, 1)})
        connection.execute(text("ALTER TABLE delayq_messages ADD CONSTRAINT delayq_messages_once UNIQUE (id, digest)"))
        for index in schema.indexes:
            index.create(connection)
        connection.execute(text(_COUNTS), {"hour_ms": HOUR_MS})
    with journal.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM ANALYZE delayq_messages"))
        # In use, the index by id is in memory: each promoted row changes a page of it.
        connection.execute(text("CREATE EXTENSION IF NOT EXISTS pg_prewarm"))
        connection.execute(text("SELECT pg_prewarm('delayq_messages_once')"))
