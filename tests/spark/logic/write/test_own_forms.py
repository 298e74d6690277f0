"""Types of Spark that have no JSON, some of which reach a Python data source as structs of bytes."""

import pytest
from pyspark.sql import types

from celery_ext.spark.errors import InvalidColumns
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.columns import Columns, check_type


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
