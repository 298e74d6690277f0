"""What a Spark task of a job reports to the driver."""

from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from kombu_delayq.store.job_types import Job

#: Most bad rows that a Spark task logs, and reports to the driver.
MOST_NAMED = 10


@dataclass
class CommitMessage(WriterCommitMessage):
    """What one Spark task has done.

    Attributes:
        job: Name of the job.
        run: Number of its run.
        rows: Number of rows.
        enqueued: Number of messages sent or staged, with the dead letters.
        repeated: Number of messages that the job had before, from another attempt or from a row with the same id.
        to_cancel: Number of rows that cancel a task.
        cancelled: Number of tasks that it has cancelled in Redis.
        bad: Number of rows that make no task.
        dead_lettered: Number of bad rows that became dead letters.
        errors: What is wrong with the first bad rows.
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
    errors: list[str] = field(default_factory=list)


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
    return f"job {job.name} is committed: {job.rows or 0:,} rows, {job.enqueued:,} messages in all{details}"
