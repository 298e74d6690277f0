"""What the columns of a DataFrame mean, decided once on the driver."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.values import check_type

_T = pa.types


def _any(*checks: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(check(kind) for check in (*checks, _T.is_null))


_TEXT = _any(_T.is_string, _T.is_large_string)
_BYTES = _any(_T.is_binary, _T.is_large_binary)
_NUMBER = _any(_T.is_integer, _T.is_floating)
_OBJECT = _any(_T.is_struct, _T.is_map, _TEXT)
#: The columns that say something of a task, each with the types that it may have, and with what to call these.
RESERVED: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "op": (_TEXT, "string: enqueue or cancel"),
    "task": (_TEXT, "string"),
    "task_id": (_TEXT, "string"),
    "args": (_any(_T.is_list, _T.is_large_list, _TEXT), "array, or string with a JSON array"),
    "kwargs": (_OBJECT, "struct, map, or string with a JSON object"),
    "eta": (_any(_T.is_timestamp), "timestamp"),
    "countdown": (_NUMBER, "number of seconds"),
    "delay_level": (_any(_T.is_integer), "whole number"),
    "expires": (_any(_T.is_timestamp, _NUMBER), "timestamp, or number of seconds"),
    "queue": (_TEXT, "string"),
    "priority": (_any(_T.is_integer), "whole number"),
    "headers": (_OBJECT, "map, struct, or string with a JSON object"),
    "root_id": (_TEXT, "string"),
    "parent_id": (_TEXT, "string"),
    "group_id": (_TEXT, "string"),
    "time_limit": (_NUMBER, "number of seconds"),
    "soft_time_limit": (_NUMBER, "number of seconds"),
    "ignore_result": (_any(_T.is_boolean), "boolean"),
}
#: The ways to say when a task is due, of which a job uses one.
DELAYS = ("eta", "countdown", "delay_level")


@dataclass(frozen=True)
class Plan:
    """Which columns do what.

    Attributes:
        reserved: Names of the reserved columns that are there.
        arguments: Names of the columns that become keyword arguments.
        id_columns: Names of the columns that make the task id, in order; empty when the whole row does.
        uuid_columns: Names of the text columns that hold UUIDs.
    """

    reserved: frozenset[str]
    arguments: tuple[str, ...]
    id_columns: tuple[str, ...]
    uuid_columns: frozenset[str]

    @classmethod
    def of(cls, schema: pa.Schema, options: WriteOptions) -> "Plan":
        """Decides what columns mean.

        Raises:
            InvalidColumns: They do not make tasks.
            InvalidSparkOption: Options do not go with them, or with each other.
        """
        names = schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidColumns(f"columns of the same name: {', '.join(twice)}")
        reserved = frozenset(RESERVED) & set(names)
        for name in names:
            _check_column(schema.field(name), name in reserved)
        id_columns, uuid_columns = options.id_columns or (), options.uuid_columns or ()
        _check_known(names, "id_columns", id_columns)
        _check_known(names, "uuid_columns", uuid_columns)
        _check_uuids(schema, uuid_columns)
        others = tuple(name for name in names if name not in reserved)
        if "kwargs" in reserved:
            _check_no_others([name for name in others if name not in id_columns])
            others = ()
        _check_task(reserved, names, options)
        _check_op(reserved, options)
        _check_delays(reserved, options)
        _check_dead_letters(options)
        return cls(reserved, others, id_columns, frozenset(uuid_columns))


def _check_column(field: pa.Field, reserved: bool) -> None:
    if reserved:
        fits, described = RESERVED[field.name]
        if not fits(field.type):
            raise InvalidColumns(f"column {field.name} is of type {field.type}; it is to be a {described}")
    check_type(field.type, field.name)


def _check_known(names: list[str], option: str, given: tuple[str, ...]) -> None:
    for name in given:
        if name not in names:
            nearest = get_close_matches(name, names, n=1)
            hint = f" (did you mean {nearest[0]}?)" if nearest else ""
            raise InvalidSparkOption(f"{option} names {name}, which is no column{hint}; there are: {', '.join(names)}")


def _check_uuids(schema: pa.Schema, names: tuple[str, ...]) -> None:
    for name in names:
        if name in RESERVED or not (_TEXT(schema.field(name).type) or _BYTES(schema.field(name).type)):
            raise InvalidSparkOption(f"uuid_columns names {name}, which is no column of texts or bytes for an argument")


def _check_no_others(others: list[str]) -> None:
    if others:
        raise InvalidColumns(
            f"unknown columns beside kwargs: {', '.join(others)}. Put them into kwargs, leave kwargs out, so that the "
            f"columns become keyword arguments, or drop them. Reserved are: {', '.join(RESERVED)}"
        )


def _check_task(reserved: frozenset[str], names: list[str], options: WriteOptions) -> None:
    if "task" not in reserved and options.task is None and not {"op", "task_id"} <= reserved:  # which may only cancel
        raise InvalidColumns(
            f"which task? Give option task, or a column task. The columns are: {', '.join(names) or 'none'}"
        )


def _check_op(reserved: frozenset[str], options: WriteOptions) -> None:
    if "op" in reserved and "task_id" not in reserved and not options.id_columns:
        raise InvalidColumns(
            "column op needs option id_columns, or a column task_id: an id that is made from the whole row, its op "
            "among it, is never that of the task to be cancelled"
        )


def _check_delays(reserved: frozenset[str], options: WriteOptions) -> None:
    given = [name for name in DELAYS if name in reserved or getattr(options, name, None) is not None]
    if len(given) > 1:
        raise InvalidColumns(
            f"both {' and '.join(given)} are given, as columns or options; a task is due by one of them"
        )


def _check_dead_letters(options: WriteOptions) -> None:
    if (options.on_bad_row == "dead_letter") != (options.dead_letter_queue is not None):
        raise InvalidSparkOption("on_bad_row=dead_letter and dead_letter_queue go together")
