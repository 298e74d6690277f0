"""The schema of the journal's tables, and its version."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    literal_column,
)

from kombu_delayq.message.text import as_bytes, as_text

#: Raised with each change of the schema. Tables of any other version are refused.
VERSION = 1

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
