"""What PostgreSQL and SQLite each say in their own way."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Table,
    Text,
    any_,
    bindparam,
    column,
    func,
    select,
    table,
    update,
)
from sqlalchemy import literal_column as raw
from sqlalchemy.dialects import postgresql, sqlite

from celery_ext.journal.schema import Name, messages, storable

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
