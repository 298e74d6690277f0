"""The journal's tables, and what PostgreSQL and SQLite each say in their own way."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    any_,
    bindparam,
    column,
    func,
    literal_column,
    select,
    table,
    update,
)
from sqlalchemy import literal_column as raw
from sqlalchemy.dialects import postgresql, sqlite

from kombu_delayq.text import as_bytes, as_text

#: Raised with each change of the schema. Tables of any other version are refused.
VERSION = 2

#: State of a row whose message is in the journal only. Any other state is the epoch in which Redis was given it.
WAITING = 0
#: State of a row whose message Redis was given, and has not any more, though it was neither delivered nor cancelled.
MISSING = -1

#: What a name begins with that no database takes as text, such as one with a NUL; its bytes follow in hex.
_ESCAPE = "\\x"


def storable(name: str) -> str:
    """Returns a name as the text that the tables have for it: nearly always itself."""
    is_plain = "\0" not in name and not name.startswith(_ESCAPE)
    if is_plain and (name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)):
        return name
    return _ESCAPE + as_bytes(name).hex()


class Name(TypeDecorator[str]):
    """Name of a queue, or id of a message, compared byte by byte."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Any) -> Any:
        """A collation of the language would be slower, and an update of the system could break indexes."""
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Escapes what no database takes."""
        return None if value is None else storable(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        """Undoes it."""
        if value is None or not value.startswith(_ESCAPE):
            return value
        return as_text(bytes.fromhex(value[len(_ESCAPE) :]))


metadata = MetaData()

#: In SQLite only a column of type INTEGER counts by itself.
_SEQ = BigInteger().with_variant(Integer, "sqlite")

messages = Table(
    "delayq_messages",
    metadata,
    Column("seq", _SEQ, primary_key=True, autoincrement=True),
    Column("queue", Name, nullable=False),
    Column("id", Name, nullable=False),
    Column("due_ms", Double, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("expire_ms", BigInteger, nullable=False),
    Column("state", Integer, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("id", "digest", name="delayq_messages_once"),
    sqlite_autoincrement=True,  # a number is never given again
)

#: Written into statements as they are, because a database uses a partial index only where it reads its condition.
is_waiting = messages.c.state == literal_column("0")
is_offered = messages.c.state > literal_column("0")
is_missing = messages.c.state < literal_column("0")


def _index(name: str, *columns: str, where: Any) -> Index:
    return Index(name, *(messages.c[column] for column in columns), postgresql_where=where, sqlite_where=where)


#: A row is in one index or two, by its state, so that marking it costs less.
indexes = [
    _index("delayq_waiting_due", "due_ms", "seq", where=is_waiting),
    _index("delayq_waiting_queue", "queue", "due_ms", "seq", where=is_waiting),
    _index("delayq_offered", "state", "queue", "due_ms", "seq", where=is_offered),
    _index("delayq_missing", "queue", "due_ms", "seq", where=is_missing),
]

#: How many rows of a queue are due in an hour (number of hours since the epoch), apart by whether Redis was given them.
counts = Table(
    "delayq_counts",
    metadata,
    Column("queue", Name, primary_key=True),
    Column("offered", Boolean, primary_key=True),
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("rows", BigInteger, nullable=False),
)

#: Changes to be added to ``counts``. Publishers in PostgreSQL insert here, so that none waits for another's commit.
count_changes = Table(
    "delayq_count_changes",
    metadata,
    Column("seq", _SEQ, primary_key=True, autoincrement=True),
    Column("queue", Name, nullable=False),
    Column("offered", Boolean, nullable=False),
    Column("hour", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
)

#: One row for each fact about the journal: its id, the version of its schema, the epoch, the heartbeat, and totals.
facts = Table(
    "delayq_journal",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

#: Up to which due time the messages of a queue have left Redis; the queue '' stands for all others.
watermarks = Table(
    "delayq_watermarks",
    metadata,
    Column("queue", Name, primary_key=True),
    Column("moved_to_ms", Double, nullable=False),
)

#: Epochs that have ended because Redis had lost data, with the watermarks of that time as JSON.
epochs = Table(
    "delayq_epochs",
    metadata,
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("ended_ms", Double, nullable=False),
    Column("watermarks", Text, nullable=False),
    Column("restored_ms", Double),
)


#: A table that takes over another's numbers, or may have been set back, numbers its rows from so much later on.
GAP = 2**40


def is_postgres(connection: Connection) -> bool:
    """Whether the database is PostgreSQL; otherwise it is SQLite."""
    return connection.dialect.name == "postgresql"


def upsert(connection: Connection, table: Table) -> Any:
    """Returns an INSERT that can have an ON CONFLICT."""
    return postgresql.insert(table) if is_postgres(connection) else sqlite.insert(table)


def among(connection: Connection, column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """Returns the condition that a column has one of some values, as one parameter, however many they are."""
    is_name = isinstance(column.type, Name)
    given = [storable(value) if is_name else int(value) for value in values]
    if is_postgres(connection):
        array = bindparam(None, given, type_=ARRAY(Text() if is_name else BigInteger()), unique=True)
        return column == any_(array)
    return column.in_(select(raw("value")).select_from(func.json_each(json.dumps(given))))


def keyed_by(connection: Connection, keys: Collection[str]) -> Select[Any]:
    """Returns a query for the ids that begin as those of tasks of some waiting keys."""
    bounds = [[storable(key + end) for end in ("~k", "~l")] for key in keys]
    low: Any
    high: Any
    if is_postgres(connection):
        arrays = [bindparam(None, [one[at] for one in bounds], type_=ARRAY(Text()), unique=True) for at in (0, 1)]
        given = func.unnest(*arrays).table_valued("low", "high", name="given").render_derived()
        low, high = given.c.low.collate("C"), given.c.high.collate("C")
    else:
        given = func.json_each(json.dumps(bounds)).table_valued("value", name="given")
        low, high = (func.json_extract(given.c.value, f"$[{at}]") for at in (0, 1))
    return select(messages.c.id).select_from(given).join(messages, (messages.c.id >= low) & (messages.c.id < high))


def ranges_of(connection: Connection, ranges: Sequence[tuple[float, float]]) -> tuple[Any, Any, Any, Any]:
    """Returns a table of ranges, and its columns: their number, their lower and their upper bound."""
    if is_postgres(connection):
        bounds: list[Any] = [
            bindparam(None, [float(one[at]) for one in ranges], type_=ARRAY(Double()), unique=True) for at in (0, 1)
        ]
        table_ = func.unnest(*bounds).table_valued("low", "high", with_ordinality="at", name="given")
        table_ = table_.render_derived()
        return table_, table_.c.at, table_.c.low, table_.c.high
    given = func.json_each(json.dumps(ranges)).table_valued("key", "value", name="given")
    return given, given.c.key, func.json_extract(given.c.value, "$[0]"), func.json_extract(given.c.value, "$[1]")


def next_numbers(connection: Connection, count: int) -> list[int]:
    """Takes numbers for rows, which no other row gets."""
    if is_postgres(connection):
        sequence = func.pg_get_serial_sequence(messages.name, "seq")
        return list(connection.scalars(select(func.nextval(sequence)).select_from(func.generate_series(1, count))))
    numbers = table("sqlite_sequence", column("name"), column("seq"))
    taken = update(numbers).where(numbers.c.name == messages.name).values(seq=numbers.c.seq + count)
    last = connection.scalar(taken.returning(numbers.c.seq))
    if last is None:  # the table has never had a row
        connection.execute(numbers.insert().values(name=messages.name, seq=count))
        last = count
    return list(range(last - count + 1, last + 1))


def last_number(connection: Connection) -> int:
    """Returns the greatest number that was given out, 0 before the first."""
    if is_postgres(connection):
        sequence = func.pg_get_serial_sequence(messages.name, "seq").op("::")(raw("regclass"))
        return connection.scalar(select(func.pg_sequence_last_value(sequence))) or 0
    numbers = table("sqlite_sequence", column("name"), column("seq"))
    return connection.scalar(select(numbers.c.seq).where(numbers.c.name == messages.name)) or 0


def number_from(connection: Connection, number: int) -> None:
    """Lets the next rows have numbers from this one on, if they would have lesser ones."""
    if is_postgres(connection):
        sequence = func.pg_get_serial_sequence(messages.name, "seq")
        connection.execute(select(func.setval(sequence, func.greatest(func.nextval(sequence), number))))
        return
    numbers = table("sqlite_sequence", column("name"), column("seq"))
    of_messages = update(numbers).where(numbers.c.name == messages.name, numbers.c.seq < number)
    connection.execute(of_messages.values(seq=number))
