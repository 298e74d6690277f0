"""The writers that Spark calls: for a DataFrame, and for a stream."""

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
        writer: Writes the job.
        name: Name of the job.
    """

    def __init__(self, writer: JobWriter, name: str) -> None:
        self._writer = writer
        self._name = name

    def write(self, iterator: Iterator[RecordBatch]) -> CommitMessage:
        """Sends the rows of one Spark task."""
        _check_case(self._writer, TaskContext.get())
        return self._writer.write(self._name, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the job, after all its Spark tasks have succeeded."""
        self._writer.commit(self._name, self._writer.run, reports_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Aborts the job, after a Spark task has failed for the last time."""
        self._writer.abort(self._name, self._writer.run)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch of a stream as a job, which is named after query and batch.

    Args:
        writer: Writes the jobs.
        checkpoint: Location of the checkpoint; empty when it is not an option.
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
            raise StragglerRefused("Spark does not say which query and batch this task belongs to")
        _check_case(self._writer, context)
        return self._writer.write(f"{query}/{batch}", iterator, self._stream)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Commits the job of a micro-batch, after all its Spark tasks have succeeded."""
        ours = reports_of(messages)
        if ours:  # a batch without Spark tasks has no job
            self._writer.commit(ours[0].job, ours[0].run, ours)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Aborts the job of a micro-batch, after a Spark task has failed for the last time."""
        ours = reports_of(messages)
        if ours:
            self._writer.abort(ours[0].job, ours[0].run)
        elif self._stream:
            self._writer.abort_stream(self._stream, batchId)


def _check_case(writer: JobWriter, context: TaskContext | None) -> None:
    """Checks the case of names if the session is case-sensitive. Spark says so to tasks only, not on the driver."""
    if context is not None and (context.getLocalProperty("spark.sql.caseSensitive") or "").lower() == "true":
        writer.columns.check_case()


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[CommitMessage]:
    """Returns the reports of those Spark tasks that have one."""
    return [message for message in messages if isinstance(message, CommitMessage)]
