"""Makes the tables, and brings those of an earlier release up to date."""

from collections.abc import Callable
from uuid import uuid4

from sqlalchemy import BigInteger, Connection, Engine, func, insert, inspect, literal_column, select, text, update

from celery_ext.journal.table.database import schema
from celery_ext.journal.table.database.away import PATIENT_S, left_s, within
from celery_ext.journal.table.database.engines import DURABLE, WRITES, connect
from kombu_delayq.errors import UnsupportedJournal

#: Number of the lock in PostgreSQL that processes take which make or change the tables: "delayq" in ASCII.
LOCK = 0x64656C617971
#: How long a change of the tables may take, in s.
CHANGE_S = 3600.0

_facts = schema.facts


def prepare(engine: Engine) -> None:
    """Makes the tables unless they are there. Any number of processes may call this at once.

    A user that may not create tables can use those that somebody else has made.

    Raises:
        UnsupportedJournal: The tables are of a later release.
    """
    with connect(engine) as connection:
        if _version(connection) == schema.VERSION:
            return
    limit_s = left_s(PATIENT_S)
    # A change of large tables may take longer than the call that begins it would wait.
    with within(CHANGE_S, anew=True), engine.execution_options(**{WRITES: True, DURABLE: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            with within(limit_s):
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(text("SET LOCAL lock_timeout = 0"))
                connection.execute(select(func.pg_advisory_xact_lock(LOCK)))
        found = _version(connection)
        if found is None:
            schema.metadata.create_all(connection)
            given = {"id": uuid4().hex, "guard": uuid4().hex, "version": schema.VERSION, "epoch": 1}
            totals = {"beat": 0, "promoted": 0, "restored": 0, "written": "0 0", "missing_ms": 0}
            rows = [{"name": name, "value": str(value)} for name, value in {**given, **totals}.items()]
            connection.execute(insert(_facts), rows)
            return
        for version in range(found, schema.VERSION):
            MIGRATIONS[version](connection)
        connection.execute(update(_facts).where(_facts.c.name == "version").values(value=str(schema.VERSION)))


def _version(connection: Connection) -> int | None:
    """Returns the version of the tables, None without any."""
    if not inspect(connection).has_table(_facts.name):
        return None
    found = connection.scalar(select(_facts.c.value).where(_facts.c.name == "version"))
    if found is None:
        return None
    if int(found) > schema.VERSION:
        raise UnsupportedJournal(
            f"the tables of the journal have version {found}, and this release of kombu-delayq knows versions up to "
            f"{schema.VERSION}: upgrade it here, too"
        )
    return int(found)


def _from_1(connection: Connection) -> None:
    """Rows are counted by the hour, and each index has only the rows of its state."""
    for name in ("delayq_messages_due", "delayq_messages_queue"):
        connection.execute(text(f"DROP INDEX IF EXISTS {name}"))
    for table in (schema.counts, schema.count_changes):
        table.create(connection)
    for index in schema.indexes:
        index.create(connection)
    messages = schema.messages.c
    is_postgres = connection.dialect.name == "postgresql"  # where a cast rounds
    hours = messages.due_ms / literal_column("3600000.0")
    hour = (func.floor(hours) if is_postgres else hours).cast(BigInteger)
    keys = [messages.queue, schema.is_offered, hour]
    found = select(*keys, func.count()).group_by(*keys)
    connection.execute(insert(schema.counts).from_select(["queue", "offered", "hour", "rows"], found))
    given = {"promoted": "0", "restored": "0", "written": "0 0", "missing_ms": "0", "guard": uuid4().hex}
    connection.execute(insert(_facts), [{"name": name, "value": value} for name, value in given.items()])


#: By version: what makes the next one of its tables.
MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _from_1}
