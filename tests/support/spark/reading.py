"""Reads waiting messages as Spark tasks do, one after the other and without Spark."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import InputPartition

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.read.reader import WaitingReader
from celery_ext.spark.source import CeleryDataSource
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer

#: A time after the end of every test, ms since the epoch.
FUTURE_MS = 4_102_444_800_000.0

Row = dict[str, Any]


def store_of(server: PrivateRedis) -> DelayStore:
    """Returns the delayed messages of a server."""
    return DelayStore(redis.Redis(port=server.port))


def fill(
    store: DelayStore, queue: str, count: int, same: int = 1, first_ms: float = FUTURE_MS, prefix: str = ""
) -> list[str]:
    """Offers messages, ``same`` of them due at a time. Returns their ids, which begin with the prefix or the queue."""
    ids = [f"{prefix or queue}-{n:05}" for n in range(count)]
    for at in range(0, count, 500):
        store.delivery.offer(
            queue,
            *(
                Offer(identity, repr(first_ms + (at + n) // same), 0, f"body of {identity}")
                for n, identity in enumerate(ids[at : at + 500])
            ),
        )
    return ids


def reader_of(server: PrivateRedis, **options: Any) -> WaitingReader:
    """Returns a reader as Spark's tasks get it: unpickled."""
    given = {"broker_url": server.url, **{name: str(value) for name, value in options.items()}}
    source = CeleryDataSource(given)
    pickler = CloudPickleSerializer()
    reader: WaitingReader = pickler.loads(pickler.dumps(source.reader(source.schema())))
    return reader


def rows_of(reader: WaitingReader, partition: InputPartition) -> Iterator[Row]:
    """Yields the rows of a partition."""
    for batch in reader.read(partition):
        yield from batch.to_pylist()


def ids_of(
    reader: WaitingReader, partitions: Sequence[InputPartition], between: Callable[[], Any] = lambda: None
) -> list[list[str]]:
    """Returns the task ids in each partition. ``between`` is called after each batch."""
    found: list[list[str]] = []
    for partition in partitions:
        found.append([])
        for batch in reader.read(partition):
            found[-1] += batch["task_id"].to_pylist()
            between()
    return found
