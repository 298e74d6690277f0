"""What the columns of a DataFrame mean, and the types that they may have: decided once on the driver."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log
from kombu_delayq.errors import did_you_mean, nearest

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
    "delay_chain": (_TEXT, "string, such as 4m,10m,1h"),
    "limit": (_TEXT, "string, such as account:7"),
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
    """Raises InvalidColumns for a type that a reserved column, whose name is in any case, cannot have."""
    fits, described = RESERVED[meant_by(name)]
    if not fits(kind):
        raise InvalidColumns(f"column {name} is of type {kind.simpleString()}; expected: {described}")


def check_type(kind: spark.DataType, where: str) -> None:
    """Raises InvalidColumns for a type that cannot stand in a message.

    where: Name of the column, or path of the field.
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


#: The ways to give a task its due time. A job uses one of them.
DELAYS = ("eta", "countdown", "delay_level")


@dataclass(frozen=True)
class Columns:
    """What each column of a DataFrame is used for. As in Spark, the case of names does not count by default.

    Attributes:
        reserved: Reserved columns of the DataFrame.
        arguments: Columns that become keyword arguments.
        id_columns: Columns that make the task id, in order; empty when the whole row does.
        uuid_columns: Columns of texts or bytes that are UUIDs.
        recased: Names that the user writes in another case than the columns have, each with the name of its column.
    """

    reserved: frozenset[str]
    arguments: tuple[str, ...]
    id_columns: tuple[str, ...]
    uuid_columns: frozenset[str]
    recased: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, schema: StructType, options: WriteOptions) -> "Columns":
        """Decides what columns mean.

        Raises:
            InvalidColumns: They make no tasks.
            InvalidSparkOption: Options contradict the columns, or each other.
        """
        written = schema.fieldNames()
        _check_names(written)
        fields = dict(zip(map(meant_by, written), schema, strict=True))
        names = tuple(fields)
        reserved = frozenset(RESERVED) & fields.keys()
        for name, field in fields.items():
            if name in reserved:
                check_reserved(field.dataType, field.name)
            check_type(field.dataType, field.name)
        id_columns = _columns_of_option("id_columns", options.id_columns or (), names)
        uuid_columns = _columns_of_option("uuid_columns", options.uuid_columns or (), names)
        _check_uuids(fields, uuid_columns)
        arguments = tuple(name for name in names if name not in reserved)
        if "kwargs" in reserved:
            _check_none_beside_kwargs([name for name in arguments if name not in id_columns])
            arguments = ()
        _check_options(reserved, written, options)
        by_user = (*written, *(options.id_columns or ()), *(options.uuid_columns or ()))
        pairs = zip(by_user, (*names, *id_columns, *uuid_columns), strict=True)
        recased = tuple((name, column) for name, column in pairs if name != column)
        return cls(reserved, arguments, id_columns, frozenset(uuid_columns), recased)

    def check_case(self) -> None:
        """Checks names for a session in which their case counts.

        Raises:
            InvalidColumns: A name is written in another case than the column that it stands for.
        """
        if self.recased:
            pairs = ", ".join(f"{written} instead of {name}" for written, name in self.recased)
            raise InvalidColumns(
                f"spark.sql.caseSensitive is true, and names are in another case: {pairs}. Write reserved columns, and "
                "the columns that an option names, in the same case; put an argument that has the name of a reserved "
                "column into a column kwargs"
            )

    def log_warnings(self) -> None:
        """Logs a warning for each argument whose name is nearly that of a reserved column."""
        for name in self.arguments:
            # An argument may have any name. Only a difference of about a letter is taken for a slip.
            slips = (reserved for reserved in RESERVED if _is_slip(name.lower(), reserved))
            reserved = nearest(name, RESERVED, alike=0.9) or next(slips, None)
            if reserved is not None:
                log(logging.WARNING, f"column {name} becomes an argument of the task; did you mean {reserved}?")


def _is_slip(name: str, meant: str) -> bool:
    """Whether a name has a letter too many, too few, another one, or two in the wrong order, but for the first.

    Of two letters, only one more is taken for a slip: most other words of two letters mean something else.
    """
    same = len(commonprefix((name, meant)))  # noqa: RUF071 of texts
    rest, due = name[same:], meant[same:]
    fewer = rest == due[1:] or rest[1:] == due[1:] or (rest[:2] == due[1::-1] and rest[2:] == due[2:])
    return bool(same and (rest[1:] == due or (len(meant) > 2 and fewer)))


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise InvalidColumns(
            "the DataFrame has no columns, and Spark passes no rows without columns on; select at least one column"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidColumns(f"columns of the same name: {', '.join(twice)}")
    lower = [name.lower() for name in names]
    alike = [name for name in names if lower.count(name.lower()) > 1]
    if alike:
        raise InvalidColumns(f"columns whose names differ in case only: {', '.join(alike)}; rename or drop all but one")


def _columns_of_option(option: str, given: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that an option names."""
    known = {name.lower(): name for name in names}
    for name in given:
        if name.lower() not in known:
            hint = did_you_mean(name, known, str)
            raise InvalidSparkOption(
                f"{option} names {name}, which is not a column{hint}; there are: {', '.join(names)}"
            )
    return tuple(known[name.lower()] for name in given)


def _check_uuids(fields: Mapping[str, StructField], names: Sequence[str]) -> None:
    for name in names:
        if name in RESERVED or not is_uuid(fields[name].dataType):
            raise InvalidSparkOption(f"uuid_columns names {name}, which is not an argument of texts or bytes")


def _check_none_beside_kwargs(others: Sequence[str]) -> None:
    if others:
        names = ", ".join(f"{name}{did_you_mean(name, RESERVED, str)}" for name in others)
        raise InvalidColumns(
            f"unknown columns beside kwargs: {names}. Put them into kwargs, drop them, or leave kwargs out: then "
            f"columns become keyword arguments. Reserved columns are: {', '.join(RESERVED)}"
        )


def _check_options(reserved: frozenset[str], written: Sequence[str], options: WriteOptions) -> None:
    only_cancels = {"op", "task_id"} <= reserved
    if "task" not in reserved and options.task is None and not only_cancels:
        raise InvalidColumns(f"which task? Give option task, or a column task. The columns are: {', '.join(written)}")
    if "op" in reserved and "task_id" not in reserved and not options.id_columns:
        raise InvalidColumns(
            "column op needs option id_columns, or a column task_id: an id made from the whole row contains op, and is "
            "never the id of the task to cancel"
        )
    delays = [name for name in DELAYS if name in reserved or getattr(options, name, None) is not None]
    if len(delays) > 1:
        raise InvalidColumns(
            f"{' and '.join(delays)} are given, as columns or options; a task gets its due time from one of them"
        )
    if options.asks_once and "task_id" not in reserved and not options.id_columns:
        raise InvalidColumns(
            f"if_waiting={options.if_waiting} needs option id_columns, or a column task_id: an id made from the whole "
            "row waits only where the same row was written before"
        )
    if (options.on_bad_row == "dead_letter") != (options.dead_letter_queue is not None):
        raise InvalidSparkOption("on_bad_row=dead_letter and dead_letter_queue go together")
