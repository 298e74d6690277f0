"""Writes a job: its rows in Spark tasks, and its end on the driver."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage
from redis.exceptions import RedisError

from celery_ext.delays import DEFAULT, DelayLevels
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import BadRow, JobCommittedBefore, StragglerRefused
from celery_ext.spark.job_types import Begun, Job, JobCounts, JobRun
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log, no_garbage_collection
from celery_ext.spark.store import BulkJobs
from celery_ext.spark.write.batch import MessageBuilder
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.schedule import Schedule
from celery_ext.spark.write.sender import JobCommitted, Sender, refused
from celery_ext.spark.write.templates import Templates
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore, Offer

if TYPE_CHECKING:
    from pyarrow import RecordBatch


#: Most bad rows that a Spark task logs.
MOST_LOGGED = 10


@dataclass
class CommitMessage(WriterCommitMessage):
    """What one Spark task has done.

    Attributes:
        job: Name of the job.
        run: Number of its run.
        rows: Number of rows.
        enqueued: Number of messages sent, or kept out by ``if_waiting``, with the dead letters.
        repeated: Number of messages that the job had before, from another attempt or from a row with the same id.
        to_cancel: Number of rows that cancel a task.
        cancelled: Number of tasks that it has cancelled in Redis.
        bad: Number of rows that make no task.
        dead_lettered: Number of bad rows that became dead letters.
    """

    job: str
    run: int
    rows: int = 0
    enqueued: int = 0
    repeated: int = 0
    to_cancel: int = 0
    cancelled: int = 0
    bad: int = 0
    dead_lettered: int = 0


def has_cancelled_nothing(job: Job, to_cancel: int) -> bool:
    """Whether a job should have cancelled tasks, and has neither cancelled one nor kept one of its own rows back."""
    return to_cancel > 0 and not job.cancelled and not job.twice


def summary(job: Job, to_cancel: int) -> str:
    """Returns the line that the driver logs when its run has committed a job.

    Args:
        job: What Redis remembers of the job.
        to_cancel: Number of rows that cancel a task.
    """
    counts = {
        "sent before": job.sent_before,
        "twice in the data": job.twice,
        "kept out by if_waiting": job.kept,
        "in place of tasks that waited": job.replaced,
        "cancelled": job.cancelled,
        "bad": job.bad,
        "dead letters": job.dead_lettered,
    }
    details = "".join(f", {count:,} {label}" for label, count in counts.items() if count)
    if has_cancelled_nothing(job, to_cancel):
        details += (
            f", nothing cancelled by {to_cancel:,} rows with op=cancel: no task with their ids waits. Are task and "
            "id_columns those of the job that has sent them?"
        )
    return f"job {job.name} is committed: {job.rows or 0:,} rows, {job.sent:,} messages in all{details}"


#: How long the abort of a job waits for the broker at most, in s. The tasks of the job have waited already.
ABORT_S = 30.0


@dataclass(frozen=True)
class JobWriter:
    """Writes one job. Pickled to executors, without a password.

    Attributes:
        options: Options of the job.
        settings: Settings of the app.
        columns: What the columns mean.
        broker: Broker of the tasks.
        run: Number of this run.
        now_ms: For a promotion, when it sends, in ms since the epoch: its job began with the first row of the hour.
        promotions: Names of the jobs of promotions that may send again what this job cancels.
    """

    options: WriteOptions
    settings: AppSettings
    columns: Columns
    broker: Broker
    run: int
    now_ms: float | None = None
    promotions: tuple[str, ...] = ()

    def job_run(self, name: str, run: int | None = None) -> JobRun:
        """Returns a run of the job with this name, by default this run."""
        options = self.options
        ttl_ms = round(options.job_ttl * 1000)
        number = self.run if run is None else run
        cancels = "op" in self.columns.reserved
        once = options.if_waiting if options.asks_once else ""
        limits = (options.max_rate, options.max_queue_depth)
        return JobRun(name, number, ttl_ms, *limits, cancels, once, dated=self.now_ms is not None)

    def write(self, name: str, batches: "Iterator[RecordBatch]", stream: str = "") -> CommitMessage:
        """Sends the rows of one Spark task.

        Args:
            name: Name of the job.
            batches: The rows.
            stream: Name of the stream that the job belongs to, if any.

        Raises:
            BadRow: A row makes no task, and ``on_bad_row`` is ``fail``.
            StragglerRefused: The job has ended, or a later run has taken it over.
            BrokerUnavailable: The broker takes no messages for longer than ``write_timeout``.
        """
        report = CommitMessage(name, self.run)
        job = self.job_run(name)
        # Another attempt of this task may have sent all of its rows.
        with self.broker.connected(self.options.write_timeout) as (store, retry), suppress(JobCommitted):
            begun = retry.until_done(lambda: store.part(BulkJobs).begin(job, stream))
            if begun.word == "committed":
                return report
            if begun.word != "open":
                raise refused(name, begun.word)
            with no_garbage_collection():
                self._send(store, job, begun, batches, report)
        return report

    def commit(self, name: str, run: int, reports: Sequence[CommitMessage]) -> None:
        """Commits a job.

        Args:
            name: Name of the job.
            run: Number of the run that has succeeded.
            reports: Reports of its Spark tasks.

        Raises:
            StragglerRefused: A later run has taken the job over, or the job was aborted.
            JobCommittedBefore: Another run has committed it, and ``on_committed`` is ``fail``.
        """
        job = self.job_run(name, run)
        with self.broker.connected(self.options.write_timeout) as (store, retry):
            state = retry.until_done(lambda: store.part(BulkJobs).finish(job, "committed", _counts(reports)))
            if state != "committed":
                raise StragglerRefused(f"job {name} is {state}; what this run has sent counts for the job as it is")
            found = retry.until_done(lambda: store.part(BulkJobs).find(name))
        if found is not None:
            self._tell_end(found, run, sum(report.to_cancel for report in reports))

    def _tell_end(self, job: Job, run: int, to_cancel: int) -> None:
        """Logs what a run that has ended has done. Fails, as ``commit`` says, if another run has committed the job."""
        if job.run == run:
            level = logging.WARNING if has_cancelled_nothing(job, to_cancel) else logging.INFO
            log(level, summary(job, to_cancel))
            return
        if self.options.on_committed == "fail":
            raise committed_before(job)
        log(logging.WARNING, f"{in_words(job)}; this run has sent nothing")

    def end(self, name: str, reports: Sequence[CommitMessage]) -> None:
        """Ends this run without a commit: a later run of the job sends what its rows have new.

        Raises:
            StragglerRefused: A later run has begun.
        """
        with self.broker.connected(self.options.write_timeout) as (store, retry):
            jobs = store.part(BulkJobs)
            state = retry.until_done(lambda: jobs.finish(self.job_run(name), "aborted", _counts(reports)))
        if state != "aborted":
            raise refused(name, state)

    def abort(self, name: str, run: int) -> None:
        """Aborts a job, so that none of its Spark tasks can write any more."""
        with self.broker.connected(min(self.options.write_timeout, ABORT_S)) as (store, retry):
            job = self.job_run(name, run)
            state = retry.until_done(lambda: store.part(BulkJobs).finish(job, "aborted"))
        then = "a run with the same name sends what is missing" if state == "aborted" else "this run does not end it"
        log(logging.WARNING, f"job {name} is {state}; {then}")

    def abort_stream(self, stream: str, batch: int) -> None:
        """Aborts the job of a stream's batch if it has begun. Spark passes neither query nor run on here."""
        with self.broker.connected(min(self.options.write_timeout, ABORT_S)) as (store, retry):
            name = retry.until_done(lambda: store.part(BulkJobs).of_stream(stream))
        if name is not None and name.endswith(f"/{batch}"):
            self.abort(name, 0)

    def _send(
        self,
        store: DelayStore,
        job: JobRun,
        begun: Begun,
        batches: "Iterator[RecordBatch]",
        report: CommitMessage,
    ) -> None:
        builder = self._builder(job.name, begun.base_ms, store.options)
        queue = self.settings.conf.get("task_default_queue") or "celery"
        with closing(Sender(store, job, self.options)) as sender:
            for batch in batches:
                report.rows += batch.num_rows
                for part in builder.parts(batch, sender.rows):
                    for error, letter in part.bad_rows:
                        self._report_bad_row(error, letter, sender, report)
                    for to, offers in part.offers.items():
                        sender.add(to, offers)
                    if part.cancelled:
                        sender.cancel(queue, part.cancelled, self.promotions)
                        report.to_cancel += len(part.cancelled)
            sender.flush()
        if report.dead_lettered and self.options.dead_letter_queue:
            with suppress(RedisError):  # the letters are there all the same
                store.queues.note_dead_letters(self.options.dead_letter_queue, report.dead_lettered)
        report.enqueued, report.repeated, report.cancelled = sender.enqueued, sender.repeated, sender.cancelled

    def _builder(self, name: str, base_ms: float, broker: Options) -> MessageBuilder:
        levels = DelayLevels.parse(self.options.delayq_levels or self.settings.levels or DEFAULT)
        promotes = self.now_ms is not None
        base_ms = base_ms if self.now_ms is None else self.now_ms
        schedule = Schedule(self.options, levels, base_ms, broker.max_delay, promotes)
        return MessageBuilder(self.columns, self.options, Templates(self.settings, broker), schedule, name)

    def _report_bad_row(self, error: str, letter: Offer | None, sender: Sender, report: CommitMessage) -> None:
        if self.options.on_bad_row == "fail":
            raise BadRow(f"{error}. With option on_bad_row=drop or dead_letter the job goes on without such rows")
        report.bad += 1
        if report.bad <= MOST_LOGGED:
            log(logging.WARNING, error)
        if letter is not None and self.options.dead_letter_queue:
            sender.add(self.options.dead_letter_queue, [letter], dead=True)
            report.dead_lettered += 1


def _counts(reports: Sequence[CommitMessage]) -> JobCounts:
    return JobCounts(
        rows=sum(report.rows for report in reports),
        bad=sum(report.bad for report in reports),
        dead_lettered=sum(report.dead_lettered for report in reports),
        cancelled=sum(report.cancelled for report in reports),
        offered=sum(report.enqueued + report.repeated for report in reports),
        fresh=sum(report.enqueued for report in reports),
    )


def committed_before(job: Job) -> JobCommittedBefore:
    """Returns the error of a run of a job that another run has committed."""
    return JobCommittedBefore(
        f"{in_words(job)}; nothing is sent. To send its rows again, or others, take another job_id. If "
        "the same run is repeated, give on_committed=skip"
    )


def in_words(job: Job) -> str:
    """Says of a job that an earlier run has committed when that was."""
    when = "" if job.ended is None else f" at {job.ended.isoformat(timespec='seconds')}"
    return f"job {job.name} was committed{when}, with {job.sent:,} tasks"
