"""The schema of the journal's tables, and its version."""

from sqlalchemy import (
    BigInteger,
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
    UniqueConstraint,
)

#: Raised with each change of the schema. ``Journal.open`` brings an older one up to date, and refuses a newer one.
VERSION = 1

metadata = MetaData()

#: In SQLite only a column of type INTEGER counts by itself.
_SEQ = BigInteger().with_variant(Integer, "sqlite")

messages = Table(
    "delayq_messages",
    metadata,
    Column("seq", _SEQ, primary_key=True, autoincrement=True),
    Column("queue", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("due_ms", Double, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("expire_ms", BigInteger, nullable=False),
    Column("state", Integer, nullable=False),
    Column("digest", LargeBinary(16), nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("id", "digest", name="delayq_messages_once"),
    Index("delayq_messages_due", "state", "due_ms", "seq"),
    Index("delayq_messages_queue", "queue", "state", "due_ms", "seq"),
    sqlite_autoincrement=True,  # a number is never given again
)

#: One row for each fact about the journal itself: its id, the version of its schema, the epoch, the beat.
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
    Column("queue", Text, primary_key=True),
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
