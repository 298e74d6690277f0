"""The writers that Spark asks for: of a DataFrame, and of a stream."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from celery_ext.spark.errors import StragglerRefused
from celery_ext.spark.write.commit_message import CommitMessage
from celery_ext.spark.write.job import JobWriter

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one job.

    Args:
        writer: How.
        name: Of the job.
    """

    def __init__(self, writer: JobWriter, name: str) -> None:
        self._writer = writer
        self._name = name

    def write(self, iterator: Iterator[RecordBatch]) -> CommitMessage:
        """Sends the rows of one Spark task."""
        _check_case(self._writer, TaskContext.get())
        return self._writer.write(self._name, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Ends the job after all its tasks have succeeded."""
        self._writer.commit(self._name, self._writer.run, _written(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Ends the job after one of its tasks has failed for good."""
        self._writer.abort(self._name, self._writer.run)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a stream as a job, named by query and batch.

    Args:
        writer: How.
        checkpoint: Location of the checkpoint; empty when it is not among the options.
    """

    def __init__(self, writer: JobWriter, checkpoint: str) -> None:
        self._writer = writer
        self._stream = sha1(checkpoint.encode(), usedforsecurity=False).hexdigest() if checkpoint else ""

    def write(self, iterator: Iterator[RecordBatch]) -> CommitMessage:
        """Sends the rows of one Spark task."""
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise StragglerRefused("Spark does not tell which query and batch this task belongs to")
        _check_case(self._writer, context)
        return self._writer.write(f"{query}/{batch}", iterator, self._stream)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Ends the job of a micro-batch after all its tasks have succeeded."""
        written = _written(messages)
        if written:  # a batch without tasks has no job
            self._writer.commit(written[0].job, written[0].run, written)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Ends the job of a micro-batch after one of its tasks has failed for good."""
        written = _written(messages)
        if written:
            self._writer.abort(written[0].job, written[0].run)
        elif self._stream:
            self._writer.abort_stream(self._stream, batchId)


def _check_case(writer: JobWriter, context: TaskContext | None) -> None:
    """Checks names again where their case counts, which Spark tells tasks only, and not who plans the job."""
    if context is not None and (context.getLocalProperty("spark.sql.caseSensitive") or "").lower() == "true":
        writer.plan.check_case()


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[CommitMessage]:
    return [each for each in messages if isinstance(each, CommitMessage)]
