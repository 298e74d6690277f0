"""The data source with a step of the test's own between Spark's rows and the writer, in the process of the writer."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import redis
from pyarrow import RecordBatch
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from celery_ext.spark import CeleryDataSource
from celery_ext.spark.write.job import CommitMessage


class Journal:
    """A list of texts by which a test and its steps tell each other something, in database 15 of the broker.

    Args:
        port: Port of the broker.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._client = redis.Redis(port=port, db=15, decode_responses=True)
        self.broker = redis.Redis(port=port, decode_responses=True)

    def note(self, text: str) -> None:
        """Adds a line."""
        self._client.rpush("journal", text)

    def lines(self, about: str = "") -> list[str]:
        """Returns the lines that begin with a text."""
        return [line for line in self._client.lrange("journal", 0, -1) if line.startswith(about)]

    def job(self, name: str) -> dict[str, str]:
        """Returns the fields of a job's hash, and the count of its part for the queue "q"."""
        return {**self.broker.hgetall(f"delayq:{{q}}:{name}:job"), **self.broker.hgetall(f"{{delayq}}:job:{name}")}


#: Takes the batches of one attempt of a Spark task, and yields them to the writer.
Step = Callable[[Iterator[RecordBatch], Journal], Iterator[RecordBatch]]


class SteppedDataSource(CeleryDataSource):
    """The data source ``celery``, with the options ``step``, a ``module:function``, and ``port``, of the broker."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "stepped"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Returns the writer of the data source, with the step before it."""
        others = {name: value for name, value in self.options.items() if name not in ("step", "port")}
        made = CeleryDataSource(others).writer(schema, overwrite)
        return _SteppedWriter(made, self.options["step"], int(self.options["port"]))


class _SteppedWriter(DataSourceArrowWriter):
    def __init__(self, writer: DataSourceArrowWriter, step: str, port: int) -> None:
        self._writer = writer
        self._step = step
        self._port = port

    def write(self, iterator: Iterator[RecordBatch]) -> CommitMessage:
        """Writes, and notes which attempt of which partition has ended how."""
        journal = Journal(self._port)
        module, _, name = self._step.partition(":")
        step: Step = getattr(import_module(module), name)
        try:
            written: Any = self._writer.write(step(iterator, journal))
        except Exception as error:
            journal.note(f"{attempt()}: {type(error).__name__}: {error}")
            raise
        journal.note(f"{attempt()}: written")
        return written  # type: ignore[no-any-return]

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._writer.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._writer.abort(messages)


def attempt() -> str:
    """Returns which attempt of which partition this process works on, such as ``partition 0, attempt 2``."""
    context = TaskContext.get()
    assert context is not None
    return f"partition {context.partitionId()}, attempt {context.attemptNumber()}"
