"""Rows of a table become tasks when their hour is near, each row once, and leave the table."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.functions import lit
from redis.exceptions import RedisError

from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker, Retry
from celery_ext.spark.errors import BrokerUnavailable, InvalidColumns, InvalidSparkOption, StragglerRefused
from celery_ext.spark.job_types import Job, JobRun
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log
from celery_ext.spark.store import BulkJobs
from celery_ext.spark.tables import HOUR, Table, check_eta, open_table
from celery_ext.spark.write.job import CommitMessage, JobWriter
from celery_ext.spark.write.writers import BatchWriter, prepare, reports_of
from kombu_delayq.message import us_of
from kombu_delayq.store import DelayStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Rows that are due within this time are near: a promotion each hour has an hour to spare.
LEAD = timedelta(hours=2)
#: Rows that are overdue for longer are with the workers as soon as they are promoted.
_BACK = timedelta(days=1)
#: How often a promotion begins an hour anew because a cancel came meanwhile.
_TRIES = 5
#: Errors that are not of one hour: the next hour would fail, too. Spark passes those of its workers on as text.
_OF_ALL = (BrokerUnavailable, InvalidSparkOption, StragglerRefused)
_OURS = re.compile(r"celery_ext\.spark\.errors\.(\w+): .*")


@dataclass(frozen=True)
class Promoted:
    """What a promotion has done.

    Attributes:
        hours: The hours whose rows were sent and removed, in UTC.
        rows: Number of their rows.
        sent: Number of messages sent to Redis.
        repeated: Number of rows that were not sent, because Redis had their ids for the same due times before: from a
            promotion that was killed, or another row; or with ``if_waiting=keep`` because others waited.
        bad: Number of rows that make no task, with ``on_bad_row=drop`` or ``dead_letter``.
    """

    hours: tuple[datetime, ...] = ()
    rows: int = 0
    sent: int = 0
    repeated: int = 0
    bad: int = 0


def promote(
    spark: SparkSession,
    table: str,
    *,
    until: datetime | None = None,
    select: Callable[[DataFrame], DataFrame] | None = None,
    **options: Any,
) -> Promoted:
    """Sends the rows of the hours that begin before a time to Redis, each row once, and removes them from the table.

    A promotion that was killed is completed by the next one. It knows id and due time of a row for ``job_ttl`` after it
    was sent.

    Args:
        spark: The session.
        table: Path or URL of a folder that has Parquet files in folders ``hour=2026-11-22T22``, in UTC, or is a table
            of Delta Lake; or the name of a table that has ``MERGE``. Write it the same each time: the bulk jobs, one
            for each hour, are named after it.
        until: Default: two hours from now, by Redis's clock. Without a zone it is in UTC.
        select: Returns the rows as tasks, with a column ``eta``, from those of the table. Rows that it leaves out are
            removed and not sent.
        **options: Options of the data source, but for ``job_id`` and ``on_committed``.

    Raises:
        InvalidSparkOption: An option is wrong.
        InvalidColumns: The columns make no tasks, or ``eta`` is not a timestamp.
        TableUnavailable: The folder is missing, or has no folders of hours or others beside them or within.
        BrokerUnavailable: The broker does not answer.
        StragglerRefused: Another promotion of the table has begun, and goes on.

    An hour that fails for its rows or files does not stop the others: the first such error is raised after them.
    """
    promotion = _Promotion(spark, table, options)
    try:
        return promotion.run(until, select or (lambda rows: rows))
    finally:
        promotion.store.close()


def cancel(rows: DataFrame, table: str, *, until: datetime | None = None, **options: Any) -> int:
    """Cancels tasks that were rows of a table, also while it is promoted. Call it after the rows are gone from there.

    Args:
        rows: What makes the ids of the tasks. Do not read it from the table, where the rows no longer are.
        table: As of ``promote``.
        until: As of ``promote``. A promotion of hours until then, and of those of the last day, begins these anew.
        **options: As of ``promote``.

    Returns:
        The number of tasks that waited in Redis and no longer do.

    Raises:
        InvalidSparkOption: An option is wrong.
        InvalidColumns: The columns make no ids.
        BrokerUnavailable: The broker does not answer.
    """
    promotion = _Promotion(rows.sparkSession, table, options)
    try:
        # A promotion may have read the rows before. None of its tasks can send from here on; it reads the hour anew.
        interrupted = promotion.interrupt(until)
        return promotion.cancel(rows.withColumn("op", lit("cancel")), interrupted)
    finally:
        promotion.store.close()


class _Promotion:
    """Writes the bulk jobs of a table. The job of an hour is never committed: it takes late rows, too."""

    def __init__(self, spark: SparkSession, table: str, options: dict[str, Any]) -> None:
        self._options = {name: _option(value) for name, value in options.items() if value is not None}
        for name in ("job_id", "on_committed"):
            if name in self._options:
                raise InvalidSparkOption(f"{name} is not an option of a promotion: table and hour name its jobs")
        parsed = WriteOptions.parse(self._options)
        self._spark = spark
        self._table = table.rstrip("/")
        self._ttl_ms = round(parsed.job_ttl * 1000)
        self._retry = Retry(parsed.write_timeout)
        broker = Broker.named_by(parsed, AppSettings.of(parsed.celery_app))
        self.store: DelayStore = broker.connect()  # what is wrong with its URL fails at once
        spark.dataSource.register(CancelDataSource)
        spark.dataSource.register(HourDataSource)

    def run(self, until: datetime | None, select: Callable[[DataFrame], DataFrame]) -> Promoted:
        """Promotes the hours that begin before a time."""
        table = open_table(self._spark, self._table)
        done, failed = Promoted(), {}
        for hour in table.hours(self._until(until)[1]):
            try:
                sent = self._promote(table, hour, select)
            except Exception as error:
                if _is_of_all(error):
                    raise
                failed[_text(hour)] = error
            else:
                if sent is not None:
                    before, done = done.repeated, _with(done, hour, *sent)
                    log(logging.INFO, f"promoted {done.rows:,} rows of {self._table}, up to the hour {_text(hour)}")
                    if count := done.repeated - before:
                        log(logging.WARNING, _not_sent(count, hour, self._table))
        failed.update(table.wrong())
        if failed:
            self._raise(failed)
        return done

    def _promote(
        self, table: Table, hour: datetime, select: Callable[[DataFrame], DataFrame]
    ) -> tuple[Job, int] | None:
        """Sends the rows of an hour, and removes them.

        Returns its job, and how many it had sent before; None if there are none.
        """
        found = self._find(self._name(hour))
        before = 0 if found is None else found.sent
        for _ in range(_TRIES):
            # A cancel that does not interrupt this run has removed its rows before they are read here.
            run = self._retry.until_done(self.store.part(BulkJobs).new_run)
            window = table.window(hour)
            if window is None:
                return None
            try:
                sent = self._send(select(window.rows), hour, run)
            except Exception as error:
                if window.is_there() or isinstance(error, StragglerRefused):
                    raise
                continue  # another promotion has removed files meanwhile
            if sent is not None:
                window.remove()
                return sent, before
        raise StragglerRefused(f"others have interrupted the promotion of {_text(hour)} {_TRIES} times")

    def _raise(self, failed: dict[str, Exception]) -> NoReturn:
        """Raises the first error of hours or folders that were not promoted. Names them all."""
        for name, error in failed.items():
            ours = _OURS.search(str(error))
            log(logging.ERROR, f"{name} of {self._table} was not promoted: {ours[0] if ours else error}")
        first = next(iter(failed.values()))
        first.add_note(f"Of {self._table} these were not promoted, and what else is near was: {', '.join(failed)}")
        raise first

    def interrupt(self, until: datetime | None) -> list[str]:
        """Ends whatever runs send the rows of hours that may be promoted now; they begin these hours anew.

        Returns the names of the jobs of these hours that have sent something.
        """
        number = self._retry.until_done(self.store.part(BulkJobs).new_run)
        now, until = self._until(until)
        hour = (now - _BACK).replace(minute=0, second=0, microsecond=0)
        names = []
        while hour < until:
            run = JobRun(self._name(hour), number, self._ttl_ms)
            self._retry.until_done(lambda run=run: self.store.part(BulkJobs).finish(run, "aborted"))  # type: ignore[misc]
            found = self._find(run.name)
            if found is not None and found.sent + found.kept:
                names.append(run.name)
            hour += HOUR
        return names

    def _until(self, until: datetime | None) -> tuple[datetime, datetime]:
        """Returns the time by Redis's clock, and before when the hours begin that are near."""
        now = datetime.fromtimestamp(self._retry.until_done(self.store.now_ms) / 1000, UTC)
        until = now + LEAD if until is None else until
        return now, until if until.tzinfo else until.replace(tzinfo=UTC)

    def cancel(self, rows: DataFrame, promotions: list[str]) -> int:
        """Cancels tasks in Redis, and returns how many. promotions: Names of jobs that may send their ids again."""
        name = f"cancel/{uuid4()}"
        given = {"job_id": name, "promotions": json.dumps(promotions)}
        rows.write.format(CancelDataSource.name()).options(**self._options, **given).mode("append").save()
        found = self._find(name)
        return 0 if found is None else found.cancelled or 0

    def _send(self, rows: DataFrame, hour: datetime, run: int) -> Job | None:
        """Sends the rows of an hour. Returns its job; None if a cancel interrupts."""
        check_eta(rows.schema)
        if "op" in map(str.lower, rows.columns):
            raise InvalidColumns("column op is for streams; cancel rows of a table with celery_ext.spark.cancel")
        name = self._name(hour)
        now_ms = self._retry.until_done(self.store.now_ms)
        of_hour = {"job_id": name, "run": str(run), "hour": hour.isoformat(), "now_ms": str(now_ms)}
        try:
            rows.write.format(HourDataSource.name()).options(**self._options, **of_hour).mode("append").save()
        except Exception:
            if self._is_interrupted(name, run):
                return None
            raise
        if self._is_interrupted(name, run):  # since the last row was sent
            return None
        found = self._find(name)
        if found is None:  # Redis was emptied meanwhile: the rows stay
            raise StragglerRefused(f"Redis has forgotten the job {name}")
        return found

    def _is_interrupted(self, name: str, run: int) -> bool:
        """Whether a cancel has ended a run. Raises StragglerRefused if another promotion has."""
        found = self._find(name)
        if found is None or found.run <= run:
            return False
        if found.state == "running":
            raise StragglerRefused(f"another promotion of {self._table} has begun, and goes on with the job {name}")
        return True

    def _find(self, name: str) -> Job | None:
        return self._retry.until_done(lambda: self.store.part(BulkJobs).find(name))

    def _name(self, hour: datetime) -> str:
        return f"promote/{self._table}/{_text(hour)}"


class CancelDataSource(DataSource):
    """Cancels tasks of promotions. Its options are those of ``celery``, and ``promotions``, the names of their jobs."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "celery_cancel"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Returns the writer of a job that cancels."""
        given = dict(self.options)
        promotions = tuple(json.loads(given.pop("promotions")))
        options = WriteOptions.parse(given)
        writer = replace(prepare(options, schema, overwrite), promotions=promotions)
        return BatchWriter(writer, str(options.job_id))


class HourDataSource(DataSource):
    """Writes the rows of an hour. Its options are those of ``celery``, and ``run``, ``hour`` and ``now_ms``."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "celery_hour"

    def writer(self, schema: StructType, overwrite: bool) -> HourWriter:
        """Returns the writer of an hour."""
        given = dict(self.options)
        run, hour = int(given.pop("run")), datetime.fromisoformat(given.pop("hour"))
        now_ms = float(given.pop("now_ms"))
        options = WriteOptions.parse(given)
        writer = replace(prepare(options, schema, overwrite), run=run, now_ms=now_ms)
        writer.columns.log_warnings()
        return HourWriter(writer, str(options.job_id), hour)


class HourWriter(BatchWriter):
    """Writes the rows of an hour as a run of a job that is not committed."""

    def __init__(self, writer: JobWriter, name: str, hour: datetime) -> None:
        super().__init__(writer, name)
        self._hour = hour

    def write(self, iterator: Iterator[pa.RecordBatch]) -> CommitMessage:
        """Sends the rows of one Spark task."""
        return super().write(_of_hour(iterator, self._hour))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Ends the run."""
        self._writer.end(self._name, reports_of(messages))


def _of_hour(batches: Iterator[pa.RecordBatch], hour: datetime) -> Iterator[pa.RecordBatch]:
    """Checks that rows are due in their hour."""
    begin_us = us_of(hour)
    for batch in batches:
        [eta] = [
            column for column, name in zip(batch.columns, batch.schema.names, strict=True) if name.lower() == "eta"
        ]
        times = pc.min_max(eta.cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
        first, last = times["min"].as_py(), times["max"].as_py()
        if first is not None and not begin_us <= first <= last < begin_us + HOUR // timedelta.resolution:
            raise InvalidColumns(
                f"rows of the hour {_text(hour)} are due in another hour. Is the hour in UTC? Write them again with "
                "their hours in UTC, and delete the files of this hour"
            )
        yield batch


def _is_of_all(error: Exception) -> bool:
    ours = _OURS.search(str(error))
    names = [each.__name__ for each in _OF_ALL]
    return isinstance(error, (*_OF_ALL, RedisError)) or (ours is not None and ours[1] in names)


def _with(done: Promoted, hour: datetime, job: Job, before: int) -> Promoted:
    rows, bad = job.rows or 0, job.bad or 0
    sent = job.sent - before - (job.dead_lettered or 0)
    return Promoted(
        (*done.hours, hour), done.rows + rows, done.sent + sent, done.repeated + rows - bad - sent, done.bad + bad
    )


def _not_sent(count: int, hour: datetime, table: str) -> str:
    return (
        f"{count:,} rows of {table} in the hour {_text(hour)} were removed and not sent: their ids were sent for the "
        "same due times before, by another promotion or from other rows, or if_waiting=keep kept them out. "
        "What is to be sent again after a cancel has to be cancelled with celery_ext.spark.cancel"
    )


def _text(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H}"


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict) else str(value)
