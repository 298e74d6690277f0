"""What the columns of a DataFrame mean, and what is said of those that make no tasks."""

import pytest
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.columns import RESERVED, Columns, check_type

TEXT, TIME, WHOLE, DOUBLE = StringType(), TimestampType(), IntegerType(), DoubleType()


TEXTS = [TEXT, CharType(3), VarcharType(3)]


TIMES = [TIME, TimestampNTZType()]


WHOLES = [WHOLE, ByteType(), ShortType(), LongType()]


NUMBERS = [*WHOLES, DOUBLE, FloatType()]


OBJECTS = [*TEXTS, StructType().add("a", TEXT), MapType(TEXT, TEXT)]


TYPES = [*OBJECTS, *NUMBERS, *TIMES, ArrayType(WHOLE), DateType(), BooleanType(), BinaryType(), DecimalType(9, 2)]


#: The types that each reserved column may have.
GOOD: dict[str, list[DataType]] = {
    **dict.fromkeys(
        ("op", "task", "task_id", "queue", "root_id", "parent_id", "group_id", "delay_chain", "limit"), TEXTS
    ),
    "args": [*TEXTS, ArrayType(WHOLE), ArrayType(TEXT)],
    **dict.fromkeys(("kwargs", "headers"), OBJECTS),
    "eta": TIMES,
    "expires": [*TIMES, *NUMBERS],
    **dict.fromkeys(("countdown", "time_limit", "soft_time_limit"), NUMBERS),
    **dict.fromkeys(("delay_level", "priority"), WHOLES),
    "ignore_result": [BooleanType()],
}


def schema_of(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def plan(columns: dict[str, DataType], **options: str) -> Columns:
    return Columns.of(schema_of(columns), WriteOptions.parse({"task": "t", **options}))


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_column_has_its_types(name: str) -> None:
    """A reserved column takes its types, and NULLs of no type; the error for others names column and types."""
    for kind in (*GOOD[name], NullType()):
        assert name in plan({"task_id": TEXT, name: kind}).reserved
    for kind in TYPES:
        if kind not in GOOD[name]:
            with pytest.raises(InvalidColumns) as caught:
                plan({"task_id": TEXT, name: kind})
            told = f"column {name} is of type {kind.simpleString()}; expected: {RESERVED[name][1]}"
            assert told in str(caught.value)


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_column_is_known_in_any_case(name: str) -> None:
    """A column has its meaning in upper case too, as databases give names, and the error shows it as it is written."""
    for written in (name.upper(), name.title()):
        found = plan({"TASK_ID" if name != "task_id" else "b": TEXT, written: GOOD[name][0]})
        assert name in found.reserved
        assert written not in found.arguments
        with pytest.raises(InvalidColumns, match=f"column {written} is of type decimal"):
            plan({written: DecimalType(9, 2)})


def test_options_name_columns_in_any_case() -> None:
    """Options find columns whatever the case of either, and arguments keep the case that the DataFrame has."""
    found = plan({"ORDER_ID": TEXT, "eta": TIME, "Token": TEXT}, id_columns="order_id,ETA", uuid_columns="TOKEN")
    assert (found.id_columns, found.uuid_columns) == (("ORDER_ID", "eta"), {"Token"})
    assert found.arguments == ("ORDER_ID", "Token")


def test_where_the_case_of_names_counts_another_case_is_refused() -> None:
    """Names that Spark itself would take for others are refused, with both; those in the same case are not."""
    with pytest.raises(InvalidColumns, match=r"caseSensitive is true.*: ETA instead of eta, a instead of A\. Write"):
        plan({"ETA": TIME, "A": TEXT, "b": TEXT}, id_columns="a,b").check_case()
    plan({"eta": TIME, "A": TEXT, "b": TEXT}, id_columns="A,b").check_case()


@pytest.mark.parametrize("names", [("eta", "ETA"), ("a", "A"), ("Queue", "QUEUE")])
def test_columns_that_differ_in_case_only_are_refused(names: tuple[str, str]) -> None:
    """Of two such columns nobody can say which is meant."""
    with pytest.raises(InvalidColumns, match=f"names differ in case only: {', '.join(names)}; rename or drop"):
        plan({"b": TEXT, **dict.fromkeys(names, TEXT)})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("count_down", "countdown"), ("PRIORTY", "priority"), ("delaylevel", "delay_level"), ("TaskId", "task_id")),
        *(("etas", "eta"), ("etaa", "eta"), ("ETA_", "eta"), ("eat", "eta"), ("et", "eta"), ("op_", "op")),
        *(("ops", "op"), ("arg", "args"), ("tasks", "task"), ("queues", "queue"), ("delay_chains", "delay_chain")),
    ],
)
def test_an_argument_with_nearly_the_name_of_a_reserved_column_is_doubted(
    name: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a column is an argument, and a warning names what may have been meant."""
    found = plan(dict.fromkeys((name, "order_id", "total", "meta", "id", "or", "at", "text"), TEXT))
    assert name in found.arguments
    found.log_warnings()
    assert caplog.messages == [f"column {name} becomes an argument of the task; did you mean {meant}?"]


def test_other_columns_are_keyword_arguments() -> None:
    """Without kwargs all columns that are not reserved are arguments, those of the id among them."""
    found = plan({"task_id": TEXT, "b": WHOLE, "priority": WHOLE, "a": TIME}, id_columns="a")
    assert found.arguments == ("b", "a")
    assert found.reserved == {"task_id", "priority"}
    assert found.id_columns == ("a",)


def test_with_kwargs_there_are_no_others_but_those_of_the_id() -> None:
    """Beside kwargs a column may only make the id; others are named, with what can be done."""
    found = plan({"kwargs": TEXT, "a": WHOLE}, id_columns="a")
    assert found.arguments == ()
    with pytest.raises(InvalidColumns, match=r"beside kwargs: b, Priorty \(did you mean priority\?\)\. Put"):
        plan({"kwargs": TEXT, "a": WHOLE, "b": WHOLE, "Priorty": WHOLE}, id_columns="a")


def test_a_task_is_needed() -> None:
    """Without option and column nobody knows which task, and the error names the columns that there are."""
    with pytest.raises(InvalidColumns, match=r"which task\? .* The columns are: tsk, b"):
        Columns.of(schema_of({"tsk": TEXT, "b": WHOLE}), WriteOptions())
    assert Columns.of(schema_of({"task": TEXT}), WriteOptions()).arguments == ()


def test_columns_are_needed() -> None:
    """Spark hands no row over of a DataFrame without columns, so that such a job would do nothing."""
    with pytest.raises(InvalidColumns, match="the DataFrame has no columns"):
        plan({})


@pytest.mark.parametrize(
    ("columns", "options", "named"),
    [
        ({"eta": TIME, "countdown": WHOLE}, {}, "eta and countdown"),
        ({"eta": TIME}, {"countdown": "5"}, "eta and countdown"),
        ({"eta": TIME}, {"delay_level": "0"}, "eta and delay_level"),
        ({"countdown": WHOLE}, {"delay_level": "5"}, "countdown and delay_level"),
        ({"a": WHOLE}, {"countdown": "0", "delay_level": "0"}, "countdown and delay_level"),
        ({"eta": TIME, "countdown": WHOLE, "delay_level": WHOLE}, {}, "eta and countdown and delay_level"),
    ],
)
def test_a_task_is_due_in_one_way(columns: dict[str, DataType], options: dict[str, str], named: str) -> None:
    """Two ways to say when tasks are due are refused, be they columns or options."""
    with pytest.raises(InvalidColumns, match=f"{named} are given"):
        plan(columns, **options)


def test_an_option_stands_for_missing_values_of_its_column() -> None:
    """The same way as a column and as an option is one way."""
    assert "countdown" in plan({"countdown": DOUBLE}, countdown="5").reserved


@pytest.mark.parametrize("option", ["id_columns", "uuid_columns"])
def test_columns_of_options_have_to_be_there(option: str) -> None:
    """A column that is not there is named, with the nearest of those that are."""
    with pytest.raises(InvalidSparkOption, match=rf"{option} names order, .*did you mean order_id\?.*: order_id, b$"):
        plan({"order_id": TEXT, "b": TEXT}, **{option: "b,order"})


@pytest.mark.parametrize(("name", "kind"), [("a", WHOLE), ("a", ArrayType(TEXT)), ("task", TEXT)])
def test_uuids_are_texts_or_bytes_of_arguments(name: str, kind: DataType) -> None:
    """A column of another type, or a reserved one, cannot hold UUIDs."""
    with pytest.raises(
        InvalidSparkOption, match=f"uuid_columns names {name}, which is not an argument of texts or bytes"
    ):
        plan({name: kind}, uuid_columns=name)


def test_two_columns_of_a_name_are_refused() -> None:
    """Spark lets a DataFrame have two columns of the same name, of which a task could get only one."""
    with pytest.raises(InvalidColumns, match="columns of the same name: a, b"):
        Columns.of(StructType([StructField(name, TEXT) for name in "abcab"]), WriteOptions(task="t"))


@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_what_waits_is_known_by_an_id_and_as_the_job_writes(mode: str) -> None:
    """An id made from the whole row names nothing that others have sent."""
    with pytest.raises(InvalidColumns, match=f"if_waiting={mode} needs option id_columns, or a column task_id"):
        plan({"a": TEXT}, if_waiting=mode)


@pytest.mark.parametrize("options", [{"on_bad_row": "dead_letter"}, {"dead_letter_queue": "dead"}])
def test_dead_letters_need_both_options(options: dict[str, str]) -> None:
    """Neither a place for dead letters without a wish for them nor the reverse is taken."""
    with pytest.raises(InvalidSparkOption, match="on_bad_row=dead_letter and dead_letter_queue go together"):
        plan({"a": TEXT}, **options)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (types.VariantType(), "column a is of type variant"),
        (types.ArrayType(types.VariantType()), r"column a\[\] is of type variant"),
        (types.GeometryType(4326), "column a is of type geometry"),
        (types.GeographyType(4326), "column a is of type geography"),
        (types.TimeType(), r"column a is of type time\(6\)"),
        (types.DayTimeIntervalType(0, 3), "column a is of type interval day to second"),
        (types.YearMonthIntervalType(0, 1), "column a is of type interval year to month"),
        (types.CalendarIntervalType(), "column a is of type interval"),
        (types.MapType(types.LongType(), types.StringType()), "column a is a map with keys of type bigint"),
        (types.MapType(types.StringType(), types.TimeType()), r"column a\[\] is of type time"),
        (types.StructType().add("b", types.ArrayType(types.TimeType())), r"column a\.b\[\] is of type time"),
        (
            types.StructType().add("b", types.LongType()).add("b", types.LongType()),
            "column a is a struct with several fields of the same name: b, b",
        ),
    ],
    ids=str,
)
def test_a_type_that_json_does_not_have_is_refused(kind: types.DataType, told: str) -> None:
    """Before any row is read, the error names the column, or the field within it, and the type as Spark does."""
    with pytest.raises(InvalidColumns, match=told):
        check_type(kind, "a")
    with pytest.raises(InvalidColumns, match=told):
        Columns.of(types.StructType().add("a", kind), WriteOptions(task="orders.close"))
