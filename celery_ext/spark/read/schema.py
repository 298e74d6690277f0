"""The columns of messages, and the schema of a DataFrame of them, in Spark and in Arrow."""

import inspect
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType, TimestampType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import DEAD_LETTERS, READY, WAITING, ReadOptions
from kombu_delayq.errors import did_you_mean
from kombu_delayq.message import FIELDS

#: The type of each column of waiting messages, by its name. ``docs/how-to/spark/read.md`` says what the columns have.
COLUMNS: dict[str, DataType] = {
    "queue": StringType(),
    "task": StringType(),
    "task_id": StringType(),
    "due": TimestampType(),
    "eta": StringType(),
    "priority": IntegerType(),
    "retries": IntegerType(),
    "args": StringType(),
    "kwargs": StringType(),
    "size": IntegerType(),
    "raw": BinaryType(),
    "layout": StringType(),
}
#: Columns of what the store keeps beside a message, which a message in a list has not.
_OF_STORE = frozenset(("due", "layout"))
_IN_LIST = {name: kind for name, kind in COLUMNS.items() if name not in _OF_STORE}
#: What a dead letter tells beside that, each under its name in ``LetterRecord``.
TOLD: dict[str, DataType] = {
    one.name: TimestampType() if one.type == datetime | None else StringType()
    for one in FIELDS
    if one.name not in COLUMNS
}
#: The same by the value of the option ``messages``.
COLUMNS_OF: dict[str, dict[str, DataType]] = {
    WAITING: COLUMNS,
    READY: _IN_LIST,
    DEAD_LETTERS: {**_IN_LIST, **TOLD},
}
#: Columns for which the body of a message is fetched from Redis.
OF_BODY = frozenset(("task", "eta", "priority", "retries", "args", "kwargs", "raw"))


def schema_of(options: ReadOptions) -> StructType:
    """Returns the schema of the option ``columns``, or of all columns.

    Raises:
        InvalidSparkOption: The option names an unknown column, or a column twice.
    """
    names, columns = options.columns, COLUMNS_OF[options.messages]
    for name in names or ():
        if name.lower() not in columns:
            raise InvalidSparkOption(f"columns names {_unknown(name, columns)}")
    if names is not None and len(_lower(names)) < len(names):
        raise InvalidSparkOption(f"columns names a column twice: {', '.join(names)}")
    return StructType([StructField(name, columns[name.lower()]) for name in names or columns])


def check_schema(schema: StructType, options: ReadOptions) -> None:
    """Checks a schema, which may come from the user, as in ``.schema(...)``.

    Raises:
        InvalidColumns: The schema has an unknown column, a column of another type or a column twice; or the option
            ``columns`` names other columns.
    """
    names, columns, found = options.columns, COLUMNS_OF[options.messages], schema.fieldNames()
    wrong = [_unknown(name, columns) for name in found if name.lower() not in columns]
    for field in schema:
        kind = columns.get(field.name.lower(), field.dataType)
        if field.dataType != kind:
            wrong.append(f"{field.name} as {field.dataType.simpleString()}, which is of type {kind.simpleString()}")
    if len(_lower(found)) < len(found):
        wrong.append("a column twice")
    if not found:
        wrong.append("no column")
    if wrong:
        known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in columns.items())
        raise InvalidColumns(f"the schema given has {'; '.join(wrong)}. There are: {known}")
    if names is not None and _lower(names) != _lower(found):
        raise InvalidColumns(
            f"the schema given has {', '.join(found)}, the option columns has {', '.join(names)}; give one of them"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the schema of record batches with a Spark schema. Times with a zone are in UTC."""
    # PySpark 4.1 writes times in UTC; later versions have a parameter for it.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    in_utc: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **in_utc)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _unknown(name: str, columns: Iterable[str]) -> str:
    return f"{name}, which is not a column{did_you_mean(name, columns, str)}"
