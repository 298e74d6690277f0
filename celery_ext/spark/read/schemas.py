"""The schemas of Spark as those of Arrow."""

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

#: PySpark 4.1 takes UTC by itself; later versions want to be told.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns the schema that record batches of a Spark schema have; times with a zone are in UTC."""
    return types.to_arrow_schema(schema, **_IN_UTC)
