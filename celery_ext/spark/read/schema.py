"""The columns of waiting messages, and the schema of a DataFrame of them, in Spark and in Arrow."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType, TimestampType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from kombu_delayq.errors import did_you_mean

#: The type of each column, by its name. ``docs/how-to/spark/read.md`` says what the columns have.
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
#: Columns for which the body of a message is fetched from Redis.
OF_BODY = frozenset(("task", "eta", "priority", "retries", "args", "kwargs", "raw"))


def schema_of(names: Sequence[str] | None) -> StructType:
    """Returns the schema of the option ``columns``, or of all columns.

    Raises:
        InvalidSparkOption: The option names an unknown column, or a column twice.
    """
    for name in names or ():
        if name.lower() not in COLUMNS:
            raise InvalidSparkOption(f"columns names {_unknown(name)}")
    if names is not None and len(_lower(names)) < len(names):
        raise InvalidSparkOption(f"columns names a column twice: {', '.join(names)}")
    return StructType([StructField(name, COLUMNS[name.lower()]) for name in names or COLUMNS])


def check_schema(schema: StructType, names: Iterable[str] | None) -> None:
    """Checks a schema, which may come from the user.

    Args:
        schema: The schema, as in ``.schema(...)``.
        names: Value of the option ``columns``, or None.

    Raises:
        InvalidColumns: The schema has an unknown column, a column of another type or a column twice; or the option
            names other columns.
    """
    found = schema.fieldNames()
    wrong = [_unknown(name) for name in found if name.lower() not in COLUMNS]
    for field in schema:
        kind = COLUMNS.get(field.name.lower(), field.dataType)
        if field.dataType != kind:
            wrong.append(f"{field.name} as {field.dataType.simpleString()}, which is of type {kind.simpleString()}")
    if len(_lower(found)) < len(found):
        wrong.append("a column twice")
    if not found:
        wrong.append("no column")
    if wrong:
        columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in COLUMNS.items())
        raise InvalidColumns(f"the schema given has {'; '.join(wrong)}. There are: {columns}")
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


def _unknown(name: str) -> str:
    return f"{name}, which is not a column{did_you_mean(name, COLUMNS, str)}"
