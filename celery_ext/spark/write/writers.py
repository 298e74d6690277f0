"""What Spark calls: the checks of a job before its first task, and the writers of a DataFrame and of a stream."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker, Retry
from celery_ext.spark.errors import BadRow, InvalidColumns, InvalidSparkOption, StragglerRefused
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log
from celery_ext.spark.store import BulkJobs
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.job import CommitMessage, JobWriter, committed_before, in_words
from celery_ext.spark.write.templates import TemplateKey, Templates
from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.store import DelayStore

if TYPE_CHECKING:
    from pyarrow import RecordBatch


def prepare(options: WriteOptions, schema: StructType, overwrite: bool, job: str | None = None) -> JobWriter:
    """Returns the writer of a job, with the number of a new run.

    Args:
        options: Options of the job.
        schema: Schema of the rows.
        overwrite: Whether Spark wants to overwrite.
        job: Name of a batch job; None for a stream.

    Raises:
        InvalidSparkOption: An option is wrong.
        InvalidColumns: The columns make no tasks.
        BrokerUnavailable: The broker does not answer.
        JobCommittedBefore: The job is committed, and ``on_committed`` is ``fail``.
    """
    if overwrite:
        raise InvalidSparkOption(
            "tasks are appended to queues, never overwritten: "
            'write .mode("append"), or .outputMode("append") of a stream'
        )
    columns = Columns.of(schema, options)
    if job is not None:  # a stream would log this for each micro-batch
        columns.log_warnings()
    settings = AppSettings.of(options.celery_app)
    broker = Broker.named_by(options, settings)
    if broker.keeps_elsewhere and options.asks_once:
        raise InvalidSparkOption(
            f"if_waiting={options.if_waiting} does not work with a journal (transport option journal_url): the script "
            "of Redis that decides about a row does not see what waits there"
        )
    settings = settings.without_broker()
    _check_route(options, settings)
    store = broker.connect()
    try:
        _check_server(store)
        if job is not None and options.job_id is not None:
            _look_back(store, job, options)
        run = Retry(options.write_timeout).until_done(store.part(BulkJobs).new_run)
        return JobWriter(options, settings, columns, broker, run)
    finally:
        store.close()


def _check_route(options: WriteOptions, settings: AppSettings) -> None:
    """Checks that the task of the options goes to one queue."""
    if options.task is not None:
        key = TemplateKey(options.task, options.queue, options.priority)
        try:
            Templates(settings).of(key)
        except BadRow as error:
            raise InvalidColumns(str(error)) from None


def _check_server(store: DelayStore) -> None:
    try:
        store.check_version()
    except UnsupportedRedis as error:
        raise InvalidSparkOption(str(error)) from None
    warning = store.eviction_warning()
    if warning:
        raise InvalidSparkOption(warning)


def _look_back(store: DelayStore, job: str, options: WriteOptions) -> None:
    """Warns of a job that is committed, or refuses it.

    Raises:
        JobCommittedBefore: It is committed, and ``on_committed`` is ``fail``.
    """
    found = store.part(BulkJobs).find(job)
    if found is not None and found.state == "committed":
        if options.on_committed == "fail":
            raise committed_before(found)
        log(logging.WARNING, f"{in_words(found)}; nothing of it is sent again")


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
        if batchId == 0:
            self._writer.columns.log_warnings()
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
