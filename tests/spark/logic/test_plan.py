"""What the columns of a DataFrame mean, and what is said of those that make no tasks."""

import pyarrow as pa
import pytest

from celery_ext.spark.errors import InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.plan import RESERVED, Plan

TEXT, TIME, WHOLE, DOUBLE = pa.string(), pa.timestamp("us", tz="UTC"), pa.int32(), pa.float64()
TEXTS = [TEXT, pa.large_string()]
NUMBERS = [WHOLE, pa.int8(), pa.int64(), DOUBLE, pa.float32()]
OBJECTS = [*TEXTS, pa.struct([("a", TEXT)]), pa.map_(TEXT, TEXT)]
TYPES = [*OBJECTS, *NUMBERS, pa.list_(WHOLE), TIME, pa.timestamp("us"), pa.date32(), pa.bool_(), pa.binary()]
#: The types that each reserved column may have.
GOOD: dict[str, list[pa.DataType]] = {
    **dict.fromkeys(("op", "task", "task_id", "queue", "root_id", "parent_id", "group_id"), TEXTS),
    "args": [*TEXTS, pa.list_(WHOLE), pa.large_list(TEXT)],
    **dict.fromkeys(("kwargs", "headers"), OBJECTS),
    "eta": [TIME, pa.timestamp("us")],
    "expires": [TIME, pa.timestamp("us"), *NUMBERS],
    **dict.fromkeys(("countdown", "time_limit", "soft_time_limit"), NUMBERS),
    **{key: [WHOLE, pa.int8(), pa.int64()] for key in ("delay_level", "priority")},
    "ignore_result": [pa.bool_()],
}


def plan(columns: dict[str, pa.DataType], **options: str) -> Plan:
    return Plan.of(pa.schema(list(columns.items())), WriteOptions.parse({"task": "t", **options}))


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_column_has_its_types(name: str) -> None:
    """A reserved column takes its types, and NULLs of no type; the error for others names column and types."""
    for kind in (*GOOD[name], pa.null()):
        assert name in plan({name: kind, "task_id": TEXT}).reserved
    for kind in TYPES:
        if kind not in GOOD[name]:
            with pytest.raises(InvalidColumns) as caught:
                plan({name: kind, "task_id": TEXT} if name != "task_id" else {name: kind})
            assert f"column {name} is of type {kind}; it is to be a {RESERVED[name][1]}" in str(caught.value)


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
    with pytest.raises(InvalidColumns, match=r"unknown columns beside kwargs: b, prio\. Put them into kwargs"):
        plan({"kwargs": TEXT, "a": WHOLE, "b": WHOLE, "prio": WHOLE}, id_columns="a")


def test_a_task_is_needed() -> None:
    """Without option and column nobody knows which task, and the error names the columns that there are."""
    with pytest.raises(InvalidColumns, match=r"which task\? .* The columns are: tsk, b"):
        Plan.of(pa.schema([("tsk", TEXT), ("b", WHOLE)]), WriteOptions())
    with pytest.raises(InvalidColumns, match="The columns are: none"):
        Plan.of(pa.schema([]), WriteOptions())
    assert Plan.of(pa.schema([("task", TEXT)]), WriteOptions()).arguments == ()


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
def test_a_task_is_due_in_one_way(columns: dict[str, pa.DataType], options: dict[str, str], named: str) -> None:
    """Two ways to say when tasks are due are refused, be they columns or options."""
    with pytest.raises(InvalidColumns, match=f"both {named} are given"):
        plan(columns, **options)


def test_an_option_stands_for_missing_values_of_its_column() -> None:
    """The same way as a column and as an option is one way."""
    assert "countdown" in plan({"countdown": DOUBLE}, countdown="5").reserved


@pytest.mark.parametrize("option", ["id_columns", "uuid_columns"])
def test_columns_of_options_have_to_be_there(option: str) -> None:
    """A column that is not there is named, with the nearest of those that are."""
    with pytest.raises(InvalidSparkOption, match=rf"{option} names order, .*did you mean order_id\?.*: order_id, b$"):
        plan({"order_id": TEXT, "b": TEXT}, **{option: "b,order"})


@pytest.mark.parametrize(("name", "kind"), [("a", WHOLE), ("a", pa.list_(TEXT)), ("task", TEXT)])
def test_uuids_are_texts_or_bytes_of_arguments(name: str, kind: pa.DataType) -> None:
    """A column of another type, or a reserved one, cannot hold UUIDs."""
    with pytest.raises(InvalidSparkOption, match=f"uuid_columns names {name}, which is no column of texts or bytes"):
        plan({name: kind}, uuid_columns=name)


def test_two_columns_of_a_name_are_refused() -> None:
    """Spark lets a DataFrame have two columns of the same name, of which a task could get only one."""
    with pytest.raises(InvalidColumns, match="columns of the same name: a, b"):
        Plan.of(pa.schema([(name, TEXT) for name in "abcab"]), WriteOptions(task="t"))


@pytest.mark.parametrize("options", [{"on_bad_row": "dead_letter"}, {"dead_letter_queue": "dead"}])
def test_dead_letters_need_both_options(options: dict[str, str]) -> None:
    """Neither a place for dead letters without a wish for them nor the reverse is taken."""
    with pytest.raises(InvalidSparkOption, match="on_bad_row=dead_letter and dead_letter_queue go together"):
        plan({"a": TEXT}, **options)
