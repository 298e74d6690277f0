"""The columns of waiting messages, and the schema that a DataFrame of them has, in Spark and in Arrow."""

import inspect
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructField, StructType, TimestampType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption


class WaitingColumn(NamedTuple):
    """A column of waiting messages.

    Attributes:
        type: Its type in Spark.
        about: What it has.
    """

    type: DataType
    about: str


#: By name. Rows that have nothing to say in a column have NULL there.
COLUMNS = {
    "queue": WaitingColumn(StringType(), "The queue that the message goes to when it is due."),
    "task": WaitingColumn(StringType(), "Name of the task; NULL for what is no Celery task, or cannot be read."),
    "task_id": WaitingColumn(StringType(), "Task id; for what is no task, the id under which Redis keeps it."),
    "due": WaitingColumn(TimestampType(), "When it is due; NULL where that is no time that Spark and Python can name."),
    "eta": WaitingColumn(StringType(), "The eta in the message, ISO 8601, as it stands there."),
    "priority": WaitingColumn(IntegerType(), "0 to 9; NULL for a message that is lost."),
    "retries": WaitingColumn(IntegerType(), "How often the task was retried before; NULL for what is no task."),
    "args": WaitingColumn(
        StringType(), "Positional arguments as JSON text; NULL where they cannot be read without risk, as in a pickle."
    ),
    "kwargs": WaitingColumn(StringType(), "Keyword arguments as JSON text, or NULL as of `args`."),
    "size": WaitingColumn(IntegerType(), "Length of the message in bytes; NULL for a message that is lost."),
    "raw": WaitingColumn(BinaryType(), "The message as it will be pushed to its queue; NULL for one that is lost."),
}
#: Those for which the body of a message is fetched from Redis.
OF_BODY = frozenset(("task", "eta", "priority", "retries", "args", "kwargs", "raw"))


def schema_of(names: Sequence[str] | None) -> StructType:
    """Returns the schema that the option ``columns`` asks for; of all columns without it.

    Raises:
        InvalidSparkOption: It names what is no column, or a column twice.
    """
    for name in names or ():
        if name.lower() not in COLUMNS:
            raise InvalidSparkOption(f"columns names {_unknown(name)}")
    if names is not None and len(_lower(names)) < len(names):
        raise InvalidSparkOption(f"columns names a column twice: {', '.join(names)}")
    return StructType([StructField(name, COLUMNS[name.lower()].type) for name in names or COLUMNS])


def check_schema(schema: StructType, names: Iterable[str] | None) -> None:
    """Checks a schema that may be the user's.

    Args:
        schema: As of ``.schema(...)``.
        names: Of the option ``columns``, if given.

    Raises:
        InvalidColumns: It has other columns than waiting messages have, or of other types.
    """
    found = schema.fieldNames()
    wrong = [_unknown(name) for name in found if name.lower() not in COLUMNS]
    known = [(field, COLUMNS[field.name.lower()].type) for field in schema if field.name.lower() in COLUMNS]
    wrong += [
        f"{field.name} as {field.dataType.simpleString()}, which is of type {kind.simpleString()}"
        for field, kind in known
        if field.dataType != kind
    ]
    if len(_lower(found)) < len(found):
        wrong.append("a column twice")
    if not found:
        wrong.append("no column")
    if wrong:
        raise InvalidColumns(f"the schema given has {'; '.join(wrong)}. {_there_are()}")
    if names is not None and _lower(names) != _lower(found):
        raise InvalidColumns(
            f"the schema given has {', '.join(found)}, the option columns {', '.join(names)}; give one of them"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the schema that record batches of a Spark schema have. Times with a zone are in UTC."""
    # PySpark 4.1 writes times in UTC; later versions have a parameter for it.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    in_utc: dict[str, Any] = {"timezone": "UTC"} if takes_zone else {}
    return to_arrow_schema(schema, **in_utc)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _unknown(name: str) -> str:
    nearest = get_close_matches(name.lower(), COLUMNS, n=1)
    return f"{name}, which is no column" + (f" (did you mean {nearest[0]}?)" if nearest else "")


def _there_are() -> str:
    return "There are: " + ", ".join(f"{name} {column.type.simpleString()}" for name, column in COLUMNS.items())
