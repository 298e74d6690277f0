"""Spark jobs as the tests write them, and the tasks that they leave on the broker."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import redis
from pyspark.sql import DataFrame, SparkSession

from celery_ext.demo.private_redis import PrivateRedis

T = TypeVar("T")
#: The folder of a row, as the page has it.
HOUR = "replace(left(TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, unix_seconds(eta)), 13), ' ', 'T')"
#: When the rows of a table are due first.
BEGIN = datetime(2040, 1, 1, tzinfo=UTC)


def append(frame: DataFrame, server: PrivateRedis, **options: Any) -> None:
    """Writes a frame to the queue ``q``. Options that are None are left out."""
    _write(frame, "celery", {"broker_url": server.url, **options})


def append_stepped(frame: DataFrame, server: PrivateRedis, step: Any, **options: Any) -> None:
    """Writes a frame as ``append`` does, in chunks of 5 messages, with a step, or its ``module:name``, before it."""
    name = step if isinstance(step, str) else f"{step.__module__}:{step.__name__}"
    given = {"step": name, "port": server.port, "chunk_size": 5}
    _write(frame, "stepped", {"broker_url": server.url, **given, **options})


@contextmanager
def beside(spark: SparkSession, work: Callable[..., T], *args: Any, **kwargs: Any) -> Iterator[Future[T]]:
    """Does some work in a thread, and waits for the thread at the end."""

    def run() -> T:
        spark.createDataFrame([], "id long")  # without this the thread has another session, which lacks the formats
        return work(*args, **kwargs)

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


def _write(frame: DataFrame, source: str, options: dict[str, Any]) -> None:
    given = {"task": "t", "queue": "q", **options}
    frame.write.format(source).options(**_told(given)).mode("append").save()


def _told(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def write_table(
    spark: SparkSession, table: Path | str, ids: Sequence[int], begin: datetime = BEGIN, *more: str
) -> None:
    """Writes rows to a table of hours as a user does: even ids are due in the first hour, odd ones in the second.

    Args:
        spark: The session.
        table: The folder.
        ids: Numbers of the rows.
        begin: When the first hour begins.
        *more: Further columns, in SQL.
    """
    rows = spark.createDataFrame([(n,) for n in ids], "id long").selectExpr(
        "id",
        "CAST(id AS STRING) AS task_id",
        f"timestamp'{begin.isoformat()}' + make_interval(0, 0, 0, 0, id % 2, 0, id) AS eta",
        *more,
    )
    rows.selectExpr("*", f"{HOUR} AS hour").write.partitionBy("hour").mode("append").parquet(str(table))


def tasks(client: redis.Redis, queue: str = "q") -> list[dict[str, Any]]:
    """Returns the messages of a queue's list, the one that is consumed next first."""
    return [taken(text) for text in reversed(client.lrange(queue, 0, -1))]


def taken(text: str) -> dict[str, Any]:
    """Returns a message as it was taken from a list."""
    found: dict[str, Any] = json.loads(text)
    return found


def kwargs(message: dict[str, Any]) -> dict[str, Any]:
    """Returns the keyword arguments of a message."""
    found: dict[str, Any] = json.loads(b64decode(message["body"]))[1]
    return found


def numbers(client: redis.Redis, queue: str = "q") -> list[int]:
    """Returns the argument ``id`` of each message of a queue's list, in order of size."""
    return sorted(kwargs(message)["id"] for message in tasks(client, queue))


def delayed(client: redis.Redis, queue: str = "q") -> dict[str, float]:
    """Returns when each delayed task of a queue is due, ms since the epoch, by task id."""
    found = client.zrange(f"delayq:{{{queue}}}:due", 0, -1, withscores=True)
    return {member[9:] if member.startswith("\x7f") else member: due_ms for member, due_ms in found}
