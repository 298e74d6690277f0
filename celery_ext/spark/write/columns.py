"""What the columns of a DataFrame mean, decided once on the driver."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.column_types import RESERVED, check_reserved, check_type, is_uuid, meant_by
from kombu_delayq.errors import did_you_mean, nearest

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

    def warnings(self) -> Iterator[str]:
        """Yields a warning for each argument whose name is nearly that of a reserved column."""
        for name in self.arguments:
            # An argument may have any name. Only a difference of about a letter is taken for a slip.
            reserved = nearest(name, RESERVED, alike=0.9)
            if reserved is not None:
                yield f"column {name} becomes an argument of the task; did you mean {reserved}?"


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
    if "op" in reserved and options.delivery == "staged":
        raise InvalidSparkOption("delivery=staged does not go with a column op: a task is cancelled at once")
    if (options.on_bad_row == "dead_letter") != (options.dead_letter_queue is not None):
        raise InvalidSparkOption("on_bad_row=dead_letter and dead_letter_queue go together")
