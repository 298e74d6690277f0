"""A column ``op`` needs ids that are the same in the row that enqueues and in the one that cancels."""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from celery_ext.spark.errors import InvalidColumns
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.columns import Columns

COLUMNS = StructType().add("op", StringType()).add("order_id", LongType())


def test_op_is_refused_where_the_whole_row_makes_the_id() -> None:
    """Ids that are made from all columns would differ between enqueue and cancel, so the job does not begin."""
    with pytest.raises(InvalidColumns, match=r"op needs option id_columns, or a column task_id"):
        Columns.of(COLUMNS, WriteOptions.parse({"task": "orders.close"}))


@pytest.mark.parametrize(
    ("columns", "options"),
    [(COLUMNS, {"id_columns": "order_id"}), (StructType([*COLUMNS, StructField("task_id", StringType())]), {})],
)
def test_op_goes_with_ids_of_the_rows_own(columns: StructType, options: dict[str, str]) -> None:
    """With ``id_columns`` or ``task_id`` both rows have one id."""
    assert "op" in Columns.of(columns, WriteOptions.parse({"task": "orders.close", **options})).reserved
