"""The data source ``celery``, as Spark knows it."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar
from uuid import uuid4

import pyarrow  # noqa: F401 both directions need it; so it is missed here, and not in a Spark task
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker, env_options
from celery_ext.spark.errors import InvalidSparkOption, StragglerRefused
from celery_ext.spark.job_types import Job
from celery_ext.spark.options import WAITING, BrokerOptions, ReadOptions, WriteOptions, check_no_table
from celery_ext.spark.python_workers import log, missing_packages_warning
from celery_ext.spark.store import BulkJobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from celery_ext.spark.read.lists import ListReader
    from celery_ext.spark.read.reader import WaitingReader
    from celery_ext.spark.write.writers import BatchWriter, StreamWriter

T = TypeVar("T", bound=BrokerOptions)


class CeleryDataSource(DataSource):
    """Writes rows as Celery tasks, and reads tasks that wait, are ready or have failed as rows.

    A Python worker imports what it needs of the two: Spark starts some of them for each job.
    """

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "celery"

    def schema(self) -> StructType:
        """Returns the columns of messages.

        Raises:
            InvalidSparkOption: An option is wrong.
        """
        from celery_ext.spark.read.schema import schema_of

        return schema_of(self._parsed(ReadOptions))

    def reader(self, schema: StructType) -> "WaitingReader | ListReader":
        """Returns a reader of messages.

        Raises:
            InvalidSparkOption: An option is wrong.
            InvalidColumns: The user's schema has columns that such messages do not have.
        """
        from celery_ext.spark.read.partitions import WaitingSelection
        from celery_ext.spark.read.reader import WaitingReader
        from celery_ext.spark.read.schema import arrow_schema, check_schema

        options = self._parsed(ReadOptions)
        check_schema(schema, options)
        if options.messages != WAITING:
            from celery_ext.spark.read.lists import ListReader

            return ListReader(_broker_to_read(options), options, arrow_schema(schema))
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

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Checks everything that is known before the first row, and returns the writer of a DataFrame.

        Raises:
            InvalidSparkOption: An option is wrong.
            InvalidColumns: The columns make no tasks.
            BrokerUnavailable: The broker does not answer.
            JobCommittedBefore: The job is committed, and ``on_committed`` is ``fail``.
        """
        from celery_ext.spark.write.writers import BatchWriter, prepare

        options = self._parsed(WriteOptions)
        name = options.job_id or str(uuid4())
        return BatchWriter(prepare(options, schema, overwrite, name), name)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":  # noqa: N802 Spark's name
        """Returns the writer of a stream, after the same checks. Spark asks for a writer for each micro-batch."""
        from celery_ext.spark.write.writers import StreamWriter, prepare

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


def send(rows: "DataFrame", **options: str) -> Job:
    """Writes a DataFrame as one job, and returns what became of it. The session knows the format, see ``register``.

    Args:
        rows: The rows.
        **options: Options of the data source, as ``DataFrameWriter.option`` takes them.

    Raises:
        InvalidSparkOption: An option is wrong.
        StragglerRefused: Redis has forgotten the job since.
    """
    parsed = WriteOptions.parse(options)
    name = parsed.job_id or str(uuid4())
    rows.write.format(CeleryDataSource.name()).options(**{**options, "job_id": name}).mode("append").save()
    broker = Broker.named_by(parsed, AppSettings.of(parsed.celery_app))
    with broker.connected(parsed.write_timeout) as (store, retry):
        found = retry.until_done(lambda: store.part(BulkJobs).find(name))
    if found is None:
        raise StragglerRefused(f"Redis has forgotten the job {name}")
    return found


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
