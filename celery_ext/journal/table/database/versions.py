"""Makes the tables."""

from uuid import uuid4

from sqlalchemy import Connection, Engine, func, insert, inspect, select

from celery_ext.journal.table.database import schema
from celery_ext.journal.table.database.engines import DURABLE, WRITES, connect
from kombu_delayq.errors import UnsupportedJournal

#: Number of the lock in PostgreSQL that processes take which make the tables: "delayq" in ASCII.
LOCK = 0x64656C617971

_facts = schema.facts


def prepare(engine: Engine) -> None:
    """Makes the tables unless they are there. Any number of processes may call this at once.

    A user that may not create tables can use those that somebody else has made.

    Raises:
        UnsupportedJournal: The tables are of another version.
    """
    with connect(engine) as connection:
        if _version(connection) == schema.VERSION:
            return
    with engine.execution_options(**{WRITES: True, DURABLE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
        if _version(connection) is None:
            schema.metadata.create_all(connection)
            given = {"id": uuid4().hex, "guard": uuid4().hex, "version": schema.VERSION, "epoch": 1}
            totals = {"beat": 0, "promoted": 0, "restored": 0, "written": "0 0", "missing_ms": 0}
            rows = [{"name": name, "value": str(value)} for name, value in {**given, **totals}.items()]
            connection.execute(insert(_facts), rows)


def _version(connection: Connection) -> int | None:
    """Returns the version of the tables, None without any."""
    if not inspect(connection).has_table(_facts.name):
        return None
    found = connection.scalar(select(_facts.c.value).where(_facts.c.name == "version"))
    if found is None:
        return None
    if int(found) != schema.VERSION:
        raise UnsupportedJournal(
            f"the tables of the journal have version {found}, and this release of kombu-delayq knows version "
            f"{schema.VERSION} alone: use the release that made them, or another database"
        )
    return int(found)
