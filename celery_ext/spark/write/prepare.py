"""Checks a job on the driver, before Spark starts its first task."""

import logging

from pyspark.sql.types import StructType

from celery_ext.spark.errors import BadRow, InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.app_settings import AppSettings
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.job import JobWriter, committed_before, in_words
from celery_ext.spark.write.templates import TemplateKey, Templates
from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.store import SparkStore


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
    if job is not None:  # A stream would log this for each micro-batch.
        for warning in columns.warnings():
            log(logging.WARNING, warning)
    settings = AppSettings.of(options.celery_app)
    broker = settings.broker_of(options)
    settings = settings.without_broker()
    _check_route(options, settings)
    store = broker.connect()
    try:
        _check_server(store)
        if job is not None and options.job_id is not None:
            _look_back(store, job, options)
        run = Retry(options.write_timeout).until_done(store.jobs.new_run)
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


def _check_server(store: SparkStore) -> None:
    try:
        store.check_version()
    except UnsupportedRedis as error:
        raise InvalidSparkOption(str(error)) from None
    warning = store.eviction_warning()
    if warning:
        raise InvalidSparkOption(warning)


def _look_back(store: SparkStore, job: str, options: WriteOptions) -> None:
    """Warns of a job that is committed, or refuses it.

    Raises:
        JobCommittedBefore: It is committed, and ``on_committed`` is ``fail``.
    """
    found = store.jobs.find(job)
    if found is not None and found.state == "committed":
        if options.on_committed == "fail":
            raise committed_before(found)
        log(logging.WARNING, f"{in_words(found)}; nothing of it is sent again")
