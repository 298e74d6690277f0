"""Streams that read files of rows, one file a micro-batch."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from celery_ext.demo.private_redis import PrivateRedis


def write_rows(directory: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds a file, which is the next micro-batch."""
    directory.mkdir(exist_ok=True)
    number = len(list(directory.iterdir()))
    unseen = directory.parent / f"{number}.json"
    unseen.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(unseen, (1e9 + number, 1e9 + number))  # Spark takes the oldest first
    unseen.rename(directory / unseen.name)


def run_stream(
    spark: SparkSession, server: PrivateRedis, directory: Path, schema: str = "id long", **options: Any
) -> StreamingQuery:
    """Runs a stream over all files in ``in`` that it has not seen yet, with its checkpoint in ``checkpoint``.

    Returns:
        The query, which has ended.
    """
    given = {"broker_url": server.url, "task": "t", "queue": "q", "checkpointLocation": directory / "checkpoint"}
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(directory / "in"))
    query = (
        files.writeStream.format("celery")
        .options(**{name: str(value) for name, value in {**given, **options}.items()})
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query
