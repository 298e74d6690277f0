"""Types of Spark that reach a Python data source as structs of bytes."""

import pytest
from pyspark.sql.types import ArrayType, DataType, GeographyType, GeometryType, StructField, StructType, VariantType

from celery_ext.spark.errors import InvalidColumns
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.plan import Plan
from celery_ext.spark.schemas import arrow_schema


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (VariantType(), "variant"),
        (ArrayType(VariantType()), "variant"),
        (GeometryType(4326), "geometry"),
        (GeographyType(4326), "geography"),
    ],
    ids=str,
)
def test_values_in_a_form_of_spark_are_refused(kind: DataType, named: str) -> None:
    """A variant, a geometry and a geography are refused, also within an array, for a task would get their bytes."""
    schema = arrow_schema(StructType([StructField("place", kind)]))
    with pytest.raises(InvalidColumns, match=rf"column place(\[\])? is a {named}.* cast it"):
        Plan.of(schema, WriteOptions(task="orders.close"))
