"""What a Spark job does with its rows, in its tasks and at its end."""

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from celery_ext.delays.levels import DelayLevels
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import BadRow, StragglerRefused
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.python_workers import log
from celery_ext.spark.retry import Retry
from celery_ext.spark.write.app_settings import AppSettings
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.commit_message import CommitMessage, summary
from celery_ext.spark.write.messages.builder import MessageBuilder
from celery_ext.spark.write.messages.schedule import Schedule
from celery_ext.spark.write.messages.templates import Templates
from celery_ext.spark.write.sender import JobCommitted, Sender, has_room, hold, refused
from kombu_delayq.store import SparkStore
from kombu_delayq.store.bulk_jobs import Begun, JobRun
from kombu_delayq.store.types import Offer

if TYPE_CHECKING:
    from pyarrow import RecordBatch

#: Most bad rows that a task names in the log, and hands to the driver.
FAULTS_NAMED = 10
#: Longest wait for a broker that is to be told of the end of a failed job, in s: its tasks have waited already.
ABORT_S = 30.0


@dataclass(frozen=True)
class JobWriter:
    """Writes the tasks of one job. Pickled to executors, without a password.

    Attributes:
        options: Of the job.
        settings: Of the app.
        plan: What the columns mean.
        broker: Where the tasks go.
        run: Number of this run.
    """

    options: WriteOptions
    settings: AppSettings
    plan: Columns
    broker: Broker
    run: int

    def job_run(self, name: str, run: int | None = None) -> JobRun:
        """Returns how a job of this name writes."""
        options = self.options
        ttl_ms = round(options.job_ttl * 1000)
        staged = options.delivery == "staged"
        number = self.run if run is None else run
        return JobRun(name, number, ttl_ms, staged, options.max_rate, options.max_queue_depth)

    def write(self, name: str, batches: "Iterator[RecordBatch]", stream: str = "") -> CommitMessage:
        """Sends the rows of one Spark task.

        Args:
            name: Of the job.
            batches: The rows.
            stream: Name of the stream that the job belongs to, if any.

        Raises:
            BadRow: A row makes no task, and that is to fail the job.
            StragglerRefused: The job has ended, or goes on in a later run.
            BrokerUnavailable: The broker takes no messages for too long.
        """
        written = CommitMessage(name, self.run)
        retry = Retry(self.options.write_timeout)
        store = retry.until_done(self.broker.connect)
        try:
            job = self.job_run(name)
            begun = retry.until_done(lambda: store.jobs.begin(job, stream))
            if begun.word == "committed":
                return written
            if begun.word != "open":
                raise refused(name, begun.word)
            with _no_search_for_cycles():
                self._send(store, job, begun, batches, written)
        except JobCommitted:
            pass  # by another attempt of this task, which has sent all of it
        finally:
            store.close()
        return written

    def commit(self, name: str, run: int, written: Sequence[CommitMessage]) -> None:
        """Ends a job that has succeeded, and sends what it has staged.

        Raises:
            StragglerRefused: A later run of the job has taken it over, or it was aborted.
        """
        job = self.job_run(name, run)
        retry = Retry(self.options.write_timeout)
        store = retry.until_done(self.broker.connect)
        try:
            state = retry.until_done(lambda: store.jobs.finish(job, "committed"))
            if state not in ("committed", "publishing"):
                raise StragglerRefused(f"job {name} is {state}; what this run has sent counts for the job as it is")
            if state == "publishing":
                publish(store, job, retry)
            found = store.jobs.find(name)
        finally:
            store.close()
        log(logging.INFO, summary(name, found.enqueued if found else 0, written))

    def abort(self, name: str, run: int) -> None:
        """Ends a job that has failed: none of its tasks can write any more."""
        retry = Retry(min(self.options.write_timeout, ABORT_S))
        store = retry.until_done(self.broker.connect)
        try:
            job = self.job_run(name, run)
            state = retry.until_done(lambda: store.jobs.finish(job, "aborted"))
        finally:
            store.close()
        log(logging.WARNING, f"job {name} is {state}; run with the same name, it sends what is missing")

    def abort_stream(self, stream: str, batch: int) -> None:
        """Ends the job of a stream's batch, if a task of it has begun. Spark tells neither the query nor the run."""
        store = Retry(min(self.options.write_timeout, ABORT_S)).until_done(self.broker.connect)
        try:
            name = store.jobs.of_stream(stream)
        finally:
            store.close()
        if name is not None and name.endswith(f"/{batch}"):
            self.abort(name, 0)

    def _send(
        self, store: SparkStore, job: JobRun, begun: Begun, batches: "Iterator[RecordBatch]", written: CommitMessage
    ) -> None:
        builder = self._messages(job.name, begun.base_ms, store.options.max_delay)
        queue = self.settings.conf.get("task_default_queue") or "celery"
        with closing(Sender(store, job, self.options)) as sender:
            for batch in batches:
                written.rows += batch.num_rows
                for part in builder.parts(batch, sender.rows):
                    for error, letter in part.bad_rows:
                        self._note(error, letter, sender, written)
                    for to, offers in part.offers.items():
                        sender.add(to, offers)
                    if part.cancelled:
                        sender.cancel(queue, part.cancelled)
            sender.flush()
        written.enqueued, written.repeated, written.cancelled = sender.enqueued, sender.repeated, sender.cancelled

    def _messages(self, name: str, base_ms: float, max_delay: float | None) -> MessageBuilder:
        levels = DelayLevels.parse(self.options.delayq_levels or self.settings.levels or DelayLevels.parse())
        schedule = Schedule(self.options, levels, base_ms, max_delay)
        depth = int(self.settings.conf.get("task_repr_maxlevels", 3) or 0)
        return MessageBuilder(self.plan, self.options, Templates(self.settings), schedule, name, depth)

    def _note(self, fault: str, letter: Offer | None, sender: Sender, written: CommitMessage) -> None:
        if self.options.on_bad_row == "fail":
            raise BadRow(f"{fault}. With option on_bad_row=drop or dead_letter the job goes on without such rows")
        written.bad += 1
        if len(written.faults) < FAULTS_NAMED:
            written.faults.append(fault)
            log(logging.WARNING, fault)
        if letter is not None and self.options.dead_letter_queue:
            sender.add(self.options.dead_letter_queue, [letter])
            written.dead_lettered += 1


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Keeps Python from searching texts for cycles, of which they have none: that is a seventh of the work."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def publish(store: SparkStore, job: JobRun, retry: Retry) -> None:
    """Sends all that a committed job has staged."""
    while True:
        reply = retry.until_done(lambda: store.jobs.publish(job), has_room)
        if reply.word != "enqueued":
            try:
                hold(reply, "of the staged messages", job.name, retry)
            except JobCommitted:
                return  # another driver has sent the last of them
        elif reply.fresh == 0:
            return
