"""A column ``op`` needs ids that are the same in the row that enqueues and in the one that cancels."""

import pyarrow as pa
import pytest

from celery_ext.spark.errors import InvalidColumns
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.plan import Plan

COLUMNS = {"op": pa.string(), "order_id": pa.int64()}


def test_op_is_refused_where_the_whole_row_makes_the_id() -> None:
    """Ids that are made from all columns would differ between enqueue and cancel, so the job does not begin."""
    with pytest.raises(InvalidColumns, match=r"op needs option id_columns, or a column task_id"):
        Plan.of(pa.schema(COLUMNS), WriteOptions.parse({"task": "orders.close"}))


@pytest.mark.parametrize(
    ("columns", "options"), [(COLUMNS, {"id_columns": "order_id"}), ({**COLUMNS, "task_id": pa.string()}, {})]
)
def test_op_goes_with_ids_of_the_rows_own(columns: dict[str, pa.DataType], options: dict[str, str]) -> None:
    """With ``id_columns`` or ``task_id`` both rows have one id."""
    assert "op" in Plan.of(pa.schema(columns), WriteOptions.parse({"task": "orders.close", **options})).reserved
