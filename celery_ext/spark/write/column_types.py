"""The reserved columns of a DataFrame, and the types that columns may have, in Spark's words."""

from collections.abc import Callable

from pyspark.sql import types as spark

from celery_ext.spark.errors import InvalidColumns

#: Whether a column may have a type.
Check = Callable[[spark.DataType], bool]


def _any(*kinds: type[spark.DataType]) -> Check:
    return lambda kind: isinstance(kind, (*kinds, spark.NullType))


_TEXTS = (spark.StringType, spark.CharType, spark.VarcharType)
_TIMES = (spark.TimestampType, spark.TimestampNTZType)
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_NUMBERS = (*_WHOLE, spark.FloatType, spark.DoubleType)
_TEXT, _OBJECT = _any(*_TEXTS), _any(spark.StructType, spark.MapType, *_TEXTS)
#: The reserved columns, which set a field of the task: for each the check of its type, and the types in words.
RESERVED: dict[str, tuple[Check, str]] = {
    "op": (_TEXT, "string: enqueue or cancel"),
    "task": (_TEXT, "string"),
    "task_id": (_TEXT, "string"),
    "args": (_any(spark.ArrayType, *_TEXTS), "array, or string with a JSON array"),
    "kwargs": (_OBJECT, "struct, map, or string with a JSON object"),
    "eta": (_any(*_TIMES), "timestamp"),
    "countdown": (_any(*_NUMBERS), "number of seconds"),
    "delay_level": (_any(*_WHOLE), "whole number"),
    "expires": (_any(*_TIMES, *_NUMBERS), "timestamp, or number of seconds"),
    "queue": (_TEXT, "string"),
    "priority": (_any(*_WHOLE), "whole number"),
    "headers": (_OBJECT, "map, struct, or string with a JSON object"),
    "root_id": (_TEXT, "string"),
    "parent_id": (_TEXT, "string"),
    "group_id": (_TEXT, "string"),
    "time_limit": (_any(*_NUMBERS), "number of seconds"),
    "soft_time_limit": (_any(*_NUMBERS), "number of seconds"),
    "ignore_result": (_any(spark.BooleanType), "boolean"),
}
#: Whether a column can hold UUIDs.
is_uuid = _any(*_TEXTS, spark.BinaryType)
#: Whether Celery's serializer ``json`` can write a type, containers apart.
_has_json = _any(*_TEXTS, *_TIMES, *_NUMBERS, spark.BooleanType, spark.DecimalType, spark.DateType, spark.BinaryType)


def meant_by(name: str) -> str:
    """Returns the name in lower case if it is that of a reserved column, else the name as it is."""
    return name.lower() if name.lower() in RESERVED else name


def check_reserved(kind: spark.DataType, name: str) -> None:
    """Checks the type of a reserved column.

    Args:
        kind: The type.
        name: Name of the column, in any case.

    Raises:
        InvalidColumns: The column cannot have this type.
    """
    fits, described = RESERVED[meant_by(name)]
    if not fits(kind):
        raise InvalidColumns(f"column {name} is of type {kind.simpleString()}; expected: {described}")


def check_type(kind: spark.DataType, where: str) -> None:
    """Checks that a type can stand in a message.

    Args:
        kind: The type.
        where: Name of the column, or path of the field within it.

    Raises:
        InvalidColumns: It cannot; the error names column or field.
    """
    if isinstance(kind, spark.UserDefinedType):
        check_type(kind.sqlType(), where)
    elif isinstance(kind, spark.StructType):
        names = kind.fieldNames()
        if len(set(names)) < len(names):
            raise InvalidColumns(f"column {where} is a struct with several fields of the same name: {', '.join(names)}")
        for field in kind:
            check_type(field.dataType, f"{where}.{field.name}")
    elif isinstance(kind, spark.ArrayType):
        check_type(kind.elementType, f"{where}[]")
    elif isinstance(kind, spark.MapType):
        if not isinstance(kind.keyType, _TEXTS):
            keys = kind.keyType.simpleString()
            raise InvalidColumns(f"column {where} is a map with keys of type {keys}; JSON has texts only")
        check_type(kind.valueType, f"{where}[]")
    elif not _has_json(kind):
        raise InvalidColumns(
            f"column {where} is of type {kind.simpleString()}, which JSON cannot have; cast it to another type"
        )
