"""The data source ``celery``, as Spark knows it."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar
from uuid import uuid4

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker, env_options
from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import BrokerOptions, ReadOptions, WriteOptions, check_no_table
from celery_ext.spark.python_workers import log, missing_packages_warning
from celery_ext.spark.read.partitions import WaitingSelection
from celery_ext.spark.read.reader import WaitingReader
from celery_ext.spark.read.schema import arrow_schema, check_schema, schema_of
from celery_ext.spark.write.writers import BatchWriter, StreamWriter, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T", bound=BrokerOptions)


class CeleryDataSource(DataSource):
    """Writes rows as Celery tasks, and reads waiting tasks as rows."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "celery"

    def schema(self) -> StructType:
        """Returns the columns of waiting messages.

        Raises:
            InvalidSparkOption: An option is wrong.
        """
        return schema_of(self._parsed(ReadOptions).columns)

    def reader(self, schema: StructType) -> WaitingReader:
        """Returns a reader of waiting messages.

        Raises:
            InvalidSparkOption: An option is wrong.
            InvalidColumns: The user's schema has columns that waiting messages do not have.
        """
        options = self._parsed(ReadOptions)
        check_schema(schema, options.columns)
        return WaitingReader(_broker_to_read(options), WaitingSelection.of(options), options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 Spark's name
        """Refuses ``readStream``.

        Raises:
            InvalidSparkOption: Always.
        """
        raise InvalidSparkOption(
            "the data source celery has no readStream: what waits is no stream of events. Read it with "
            "spark.read.format('celery'), each time anew"
        )

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Checks everything that is known before the first row, and returns the writer of a DataFrame.

        Raises:
            InvalidSparkOption: An option is wrong.
            InvalidColumns: The columns make no tasks.
            BrokerUnavailable: The broker does not answer.
            JobCommittedBefore: The job is committed, and ``on_committed`` is ``fail``.
        """
        options = self._parsed(WriteOptions)
        name = options.job_id or str(uuid4())
        return BatchWriter(prepare(options, schema, overwrite, name), name)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 Spark's name
        """Returns the writer of a stream, after the same checks. Spark asks for a writer for each micro-batch."""
        options = self._parsed(WriteOptions)
        if options.job_id is not None:
            raise InvalidSparkOption("job_id is for batch jobs; a stream names its jobs by query and batch")
        if "on_committed" in map(str.lower, self.options) and options.on_committed == "fail":
            raise InvalidSparkOption(
                "on_committed=fail is for batch jobs; a stream repeats its last batch after a restart"
            )
        options = replace(options, on_committed="skip")
        return StreamWriter(prepare(options, schema, overwrite), self.options.get("checkpointlocation", ""))

    def _parsed(self, kind: type[T]) -> T:
        check_no_table(self.options)
        return kind.parse(self.options)


def register(spark: "SparkSession") -> None:
    """Adds the format ``celery`` to a session. Logs a warning if the session's Python workers lack packages."""
    context = getattr(spark, "_sc", None)  # None with Spark Connect
    warning = missing_packages_warning(context.pythonExec) if context is not None else None
    if warning:
        log(logging.WARNING, warning)
    spark.dataSource.register(CeleryDataSource)


def _broker_to_read(options: ReadOptions) -> Broker:
    if options.replica_url is None and options.replica_url_env is None:
        return Broker.named_by(options, AppSettings.of(options.celery_app))
    return Broker.of(
        options.replica_url,
        options.replica_url_env,
        options.broker_transport_options or {},
        option="replica_url",
        env_options=env_options(options),
    )
