"""What a Spark job does with its rows: the batch writer, the stream writer, and what both share."""

import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from celery_ext.levels import DelayLevels
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import BadRow, StragglerRefused
from celery_ext.spark.messages import Messages
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.patience import Patience
from celery_ext.spark.plan import Plan
from celery_ext.spark.schedule import Schedule
from celery_ext.spark.sending import JobCommitted, Sender, has_room, hold
from celery_ext.spark.templates import Templates
from kombu_delayq.results import Begun, JobRun, Offer
from kombu_delayq.store import DelayStore

if TYPE_CHECKING:
    from pyarrow import RecordBatch

logger = logging.getLogger("celery_ext.spark")
#: Most bad rows that a task names in the log, and hands to the driver.
FAULTS_NAMED = 10


@dataclass
class Written(WriterCommitMessage):
    """What one Spark task has done.

    Attributes:
        job: Name of the job.
        run: Number of its run.
        rows: Number of rows.
        enqueued: Number of messages sent or staged, dead letters among them.
        repeated: Number of messages that the job had before: from another attempt, or from a row with the same id.
        cancelled: Number of waiting tasks that were cancelled.
        bad: Number of rows that make no task.
        dead_lettered: Number of those that are among the dead letters.
        faults: Some of them, in words.
    """

    job: str
    run: int
    rows: int = 0
    enqueued: int = 0
    repeated: int = 0
    cancelled: int = 0
    bad: int = 0
    dead_lettered: int = 0
    faults: list[str] = field(default_factory=list)


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
    plan: Plan
    broker: Broker
    run: int

    def job_run(self, name: str, run: int | None = None) -> JobRun:
        """Returns how a job of this name writes."""
        options = self.options
        ttl_ms = round(options.job_ttl * 1000)
        staged = options.delivery == "staged"
        number = self.run if run is None else run
        return JobRun(name, number, ttl_ms, staged, options.max_rate, options.max_queue_depth)

    def write(self, name: str, batches: "Iterator[RecordBatch]", stream: str = "") -> Written:
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
        written = Written(name, self.run)
        patience = Patience(self.options.write_timeout)
        store = patience.until_done(self.broker.connect)
        try:
            job = self.job_run(name)
            begun = patience.until_done(lambda: store.begin(job, stream))
            if begun.word == "committed":
                return written
            if begun.word == "mixed":
                raise StragglerRefused(f"job {name} has begun with another delivery; run it with the same option again")
            if begun.word != "open":
                raise StragglerRefused(f"job {name} is {begun.word}; this task does not write")
            self._send(store, job, begun, batches, written)
        except JobCommitted:
            pass  # by another attempt of this task, which has sent all of it
        finally:
            store.close()
        return written

    def commit(self, name: str, run: int, written: Sequence[Written]) -> None:
        """Ends a job that has succeeded, and sends what it has staged.

        Raises:
            StragglerRefused: A later run of the job has taken it over, or it was aborted.
        """
        job = self.job_run(name, run)
        patience = Patience(self.options.write_timeout)
        store = patience.until_done(self.broker.connect)
        try:
            state = patience.until_done(lambda: store.finish(job, "committed"))
            if state not in ("committed", "publishing"):
                raise StragglerRefused(f"job {name} is {state}; what this run has sent counts for the job as it is")
            if state == "publishing":
                publish(store, job, patience)
            found = store.job(name)
        finally:
            store.close()
        log(logging.INFO, summary(name, found.enqueued if found else 0, written))

    def abort(self, name: str, run: int) -> None:
        """Ends a job that has failed: none of its tasks can write any more."""
        store = Patience(self.options.write_timeout).until_done(self.broker.connect)
        try:
            job = self.job_run(name, run)
            state = Patience(self.options.write_timeout).until_done(lambda: store.finish(job, "aborted"))
        finally:
            store.close()
        log(logging.WARNING, f"job {name} is {state}; run with the same name, it sends what is missing")

    def _send(
        self, store: DelayStore, job: JobRun, begun: Begun, batches: "Iterator[RecordBatch]", written: Written
    ) -> None:
        sender = Sender(store, job, self.options)
        messages = self._messages(job.name, begun.base_ms, store.options.max_delay)
        queue = self.settings.conf.get("task_default_queue") or "celery"
        for batch in batches:
            made = messages.of(batch)
            written.rows += batch.num_rows
            for fault, letter in made.faults:
                self._note(fault, letter, sender, written)
            for to, offers in made.offers.items():
                sender.add(to, offers)
            if made.cancelled:
                sender.cancel(queue, made.cancelled)
        sender.flush()
        written.enqueued, written.repeated, written.cancelled = sender.enqueued, sender.repeated, sender.cancelled

    def _messages(self, name: str, base_ms: float, max_delay: float | None) -> Messages:
        levels = DelayLevels.parse(self.options.delayq_levels or self.settings.levels or DelayLevels.parse())
        schedule = Schedule(self.options, levels, base_ms, max_delay)
        depth = int(self.settings.conf.get("task_repr_maxlevels", 3) or 0)
        return Messages(self.plan, self.options, Templates(self.settings), schedule, name, depth)

    def _note(self, fault: str, letter: Offer | None, sender: Sender, written: Written) -> None:
        if self.options.on_bad_row == "fail":
            raise BadRow(f"{fault}. With option on_bad_row=drop or dead_letter the job goes on without such rows")
        written.bad += 1
        if len(written.faults) < FAULTS_NAMED:
            written.faults.append(fault)
            log(logging.WARNING, fault)
        if letter is not None and self.options.dead_letter_queue:
            sender.add(self.options.dead_letter_queue, [letter])
            written.dead_lettered += 1


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame as one job.

    Args:
        writer: How.
        name: Of the job.
    """

    def __init__(self, writer: JobWriter, name: str) -> None:
        self._writer = writer
        self._name = name

    def write(self, iterator: "Iterator[RecordBatch]") -> Written:
        """Sends the rows of one Spark task."""
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

    def write(self, iterator: "Iterator[RecordBatch]") -> Written:
        """Sends the rows of one Spark task."""
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise StragglerRefused("Spark does not tell which query and batch this task belongs to")
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
            return
        store = Patience(self._writer.options.write_timeout).until_done(self._writer.broker.connect)
        try:
            name = store.job_of_stream(self._stream) if self._stream else None
        finally:
            store.close()
        if name is not None and name.endswith(f"/{batchId}"):
            self._writer.abort(name, 0)


def publish(store: DelayStore, job: JobRun, patience: Patience) -> None:
    """Sends all that a committed job has staged."""
    while True:
        reply = patience.until_done(lambda: store.publish(job), has_room)
        if reply.word != "enqueued":
            try:
                hold(reply, "of the staged messages", job.name, patience)
            except JobCommitted:
                return  # another driver has sent the last of them
        elif reply.fresh == 0:
            return


def summary(name: str, sent: int, written: Sequence[Written]) -> str:
    """Returns what a job has done, in a line.

    Args:
        name: Of the job.
        sent: Number of messages that all its runs and attempts have sent.
        written: What the tasks of the last run have done.
    """
    names = {"repeated": "sent before", "cancelled": "cancelled", "bad": "bad", "dead_lettered": "dead letters"}
    counts = {told: sum(getattr(each, what) for each in written) for what, told in names.items()}
    told = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    return f"job {name} is committed: {sum(each.rows for each in written):,} rows, {sent:,} messages in all{told}"


def log(level: int, text: str) -> None:
    """Logs a line, to stderr where nobody has configured logging, as in Spark's Python workers."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.log(level, text)


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]
