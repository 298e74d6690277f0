"""What the columns of a DataFrame mean, decided once on the driver."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pyspark.sql.types import StructField, StructType

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.column_types import RESERVED, check_reserved, check_type, is_uuid, meant_by

#: The ways to say when a task is due, of which a job uses one.
DELAYS = ("eta", "countdown", "delay_level")


@dataclass(frozen=True)
class Columns:
    """Which columns do what. Names are compared as Spark does by default, without regard to case.

    Attributes:
        reserved: Names of the reserved columns that are there.
        arguments: Names of the columns that become keyword arguments.
        id_columns: Names of the columns that make the task id, in order; empty when the whole row does.
        uuid_columns: Names of the text columns that hold UUIDs.
        recased: Names that are written in another case than what they are taken for, with that.
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
            InvalidColumns: They do not make tasks.
            InvalidSparkOption: Options do not go with them, or with each other.
        """
        written = schema.fieldNames()
        _check_names(written)
        names = list(map(meant_by, written))
        reserved = frozenset(RESERVED) & set(names)
        for name, field in zip(names, schema, strict=True):
            if name in reserved:
                check_reserved(field.dataType, field.name)
            check_type(field.dataType, field.name)
        id_columns = _named_by("id_columns", options.id_columns or (), names)
        uuid_columns = _named_by("uuid_columns", options.uuid_columns or (), names)
        _check_uuids(dict(zip(names, schema, strict=True)), uuid_columns)
        others = tuple(name for name in names if name not in reserved)
        if "kwargs" in reserved:
            _check_no_others([name for name in others if name not in id_columns])
            others = ()
        _check_task(reserved, written, options)
        _check_op(reserved, options)
        _check_delays(reserved, options)
        _check_dead_letters(options)
        said = (*written, *(options.id_columns or ()), *(options.uuid_columns or ()))
        meant = (*names, *id_columns, *uuid_columns)
        recased = tuple((each, name) for each, name in zip(said, meant, strict=True) if each != name)
        return cls(reserved, others, id_columns, frozenset(uuid_columns), recased)

    def check_case(self) -> None:
        """Refuses what would mean something else where the case of names counts.

        Raises:
            InvalidColumns: A name is written in another case than what it is taken for.
        """
        if self.recased:
            told = ", ".join(f"{written} instead of {name}" for written, name in self.recased)
            raise InvalidColumns(
                f"spark.sql.caseSensitive is true, and names are in another case: {told}. Write a column that says "
                "something of the task, and what an option names, in the same case; put what is to be an argument of "
                "such a name into a column kwargs"
            )

    def doubts(self) -> Iterator[str]:
        """Yields warnings: of each argument that may be meant to be a reserved column."""
        for name in self.arguments:
            for meant in get_close_matches(name.lower(), RESERVED, n=1, cutoff=0.9):
                yield f"column {name} becomes an argument of the task; did you mean {meant}?"


def _check_names(written: Sequence[str]) -> None:
    if not written:
        raise InvalidColumns(
            "the DataFrame has no columns, and Spark hands no rows of such a one over; select a column at least"
        )
    twice = sorted({name for name in written if written.count(name) > 1})
    if twice:
        raise InvalidColumns(f"columns of the same name: {', '.join(twice)}")
    lower = [name.lower() for name in written]
    alike = [name for name in written if lower.count(name.lower()) > 1]
    if alike:
        raise InvalidColumns(f"columns whose names differ in case only: {', '.join(alike)}; rename or drop all but one")


def _named_by(option: str, given: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns that an option names."""
    known = {name.lower(): name for name in names}
    for name in given:
        if name.lower() not in known:
            hint = _nearest(name, tuple(known))
            raise InvalidSparkOption(f"{option} names {name}, which is no column{hint}; there are: {', '.join(names)}")
    return tuple(known[name.lower()] for name in given)


def _nearest(name: str, names: Sequence[str]) -> str:
    nearest = get_close_matches(name.lower(), names, n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def _check_uuids(fields: Mapping[str, StructField], names: Sequence[str]) -> None:
    for name in names:
        if name in RESERVED or not is_uuid(fields[name].dataType):
            raise InvalidSparkOption(f"uuid_columns names {name}, which is no column of texts or bytes for an argument")


def _check_no_others(others: Sequence[str]) -> None:
    if others:
        told = ", ".join(f"{name}{_nearest(name, tuple(RESERVED))}" for name in others)
        raise InvalidColumns(
            f"unknown columns beside kwargs: {told}. Put them into kwargs, leave kwargs out, so that the "
            f"columns become keyword arguments, or drop them. Reserved are: {', '.join(RESERVED)}"
        )


def _check_task(reserved: frozenset[str], written: Sequence[str], options: WriteOptions) -> None:
    if "task" not in reserved and options.task is None and not {"op", "task_id"} <= reserved:  # which may only cancel
        raise InvalidColumns(f"which task? Give option task, or a column task. The columns are: {', '.join(written)}")


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
