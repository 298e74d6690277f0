"""The data source ``celery``, as Spark knows it."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import BadRow, InvalidColumns, InvalidSparkOption
from celery_ext.spark.options import BrokerOptions, ReadOptions, WriteOptions, check_no_table
from celery_ext.spark.python_workers import log, missing_packages_warning
from celery_ext.spark.read.reader import WaitingReader
from celery_ext.spark.read.schema import arrow_schema, check_schema, schema_of
from celery_ext.spark.read.selection import WaitingSelection
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.app_settings import AppSettings
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.job import JobWriter
from celery_ext.spark.write.messages.templates import TemplateKey, Templates
from celery_ext.spark.write.writers import BatchWriter, StreamWriter
from kombu_delayq.store import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T", bound=BrokerOptions)


class CeleryDataSource(DataSource):
    """Rows become Celery tasks, and waiting tasks become rows."""

    @classmethod
    def name(cls) -> str:
        """Returns what stands in ``format``."""
        return "celery"

    def schema(self) -> StructType:
        """Returns the columns of waiting messages, see ``celery_ext.spark.read.schema``.

        Raises:
            InvalidSparkOption: An option is wrong.
        """
        return schema_of(self._parsed(ReadOptions).columns)

    def reader(self, schema: StructType) -> WaitingReader:
        """Returns a reader of waiting messages.

        Raises:
            InvalidSparkOption: An option is wrong.
            InvalidColumns: The schema that the user gave has columns that waiting messages do not have.
        """
        options = self._parsed(ReadOptions)
        check_schema(schema, options.columns)
        return WaitingReader(_read_from(options), WaitingSelection.of(options), options, arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Returns the writer of a DataFrame, after all that can be checked has been.

        Raises:
            InvalidSparkOption: An option is wrong.
            InvalidColumns: The columns make no tasks.
            BrokerUnavailable: The broker does not answer.
        """
        options = self._parsed(WriteOptions)
        name = options.job_id or str(uuid4())
        return BatchWriter(_job_writer(options, schema, overwrite, name), name)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 Spark's name
        """Returns the writer of a stream, checked as that of a DataFrame. Spark asks for one for each micro-batch."""
        options = self._parsed(WriteOptions)
        if options.job_id is not None:
            raise InvalidSparkOption("job_id is for batch jobs; a stream names its jobs by query and batch")
        writer = _job_writer(options, schema, overwrite)
        return StreamWriter(writer, self.options.get("checkpointlocation", ""))

    def _parsed(self, kind: type[T]) -> T:
        check_no_table(self.options)
        return kind.parse(self.options)


def register(spark: "SparkSession") -> None:
    """Makes the format ``celery`` known to a session, and logs if its Python workers will not have what it needs."""
    context = getattr(spark, "_sc", None)  # Spark Connect has none
    warning = missing_packages_warning(context.pythonExec) if context is not None else None
    if warning:
        log(logging.WARNING, warning)
    spark.dataSource.register(CeleryDataSource)


def _job_writer(options: WriteOptions, schema: StructType, overwrite: bool, job: str | None = None) -> JobWriter:
    if overwrite:
        raise InvalidSparkOption(
            "tasks are appended to queues, never overwritten: "
            'write .mode("append"), or .outputMode("append") of a stream'
        )
    plan = Columns.of(schema, options)
    if job is not None:  # not again for each micro-batch of a stream
        for warning in plan.warnings():
            log(logging.WARNING, warning)
    settings = AppSettings.of(options.celery_app)
    broker = broker_of(options, settings)
    settings = settings.without_broker()
    _check_way(options, settings)
    store = broker.connect()
    try:
        _check_server(store)
        if job is not None and options.job_id is not None:
            _tell_if_committed(store, job)
        run = Retry(options.write_timeout).until_done(store.jobs.new_run)
        return JobWriter(options, settings, plan, broker, run)
    finally:
        store.close()


def broker_of(options: Any, settings: AppSettings) -> Broker:
    """Returns the broker that options name, else that of the app.

    Raises:
        InvalidSparkOption: None is named, or it has a password that Spark would keep.
    """
    url = options.broker_url
    if url is None and options.broker_url_env is None:
        url = settings.broker_url
    given: Mapping[str, Any] = {**settings.transport_options, **(options.broker_transport_options or {})}
    return Broker.of(url, options.broker_url_env, given, settings.tls)


def _read_from(options: ReadOptions) -> Broker:
    if options.replica_url is None and options.replica_url_env is None:
        return broker_of(options, AppSettings.of(options.celery_app))
    return Broker.of(
        options.replica_url, options.replica_url_env, options.broker_transport_options or {}, option="replica_url"
    )


def _check_way(options: WriteOptions, settings: AppSettings) -> None:
    """Finds a task that goes to no list, before any Spark task starts."""
    if options.task is not None:
        key = TemplateKey(options.task, options.queue, options.priority)
        try:
            Templates(settings).of(key)
        except BadRow as error:
            raise InvalidColumns(str(error)) from None


def _check_server(store: SparkStore) -> None:
    store.check_version()
    warning = store.eviction_warning()
    if warning:
        raise InvalidSparkOption(warning)


def _tell_if_committed(store: SparkStore, job: str) -> None:
    found = store.jobs.find(job)
    if found is not None and found.state == "committed":
        log(
            logging.WARNING,
            f"job {job} was committed before, with {found.enqueued:,} tasks; nothing of it is sent again",
        )
