"""What a Spark task of a job reports to the driver."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from celery_ext.spark.far.manifest import DataFile

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
        cancelled: Number of waiting tasks that were cancelled.
        bad: Number of rows that make no task.
        dead_lettered: Number of bad rows that became dead letters.
        errors: What is wrong with the first bad rows.
        files: Files of the far tier that it has written.
        cancels: Ids of tasks to cancel in the far tier.
    """

    job: str
    run: int
    rows: int = 0
    enqueued: int = 0
    repeated: int = 0
    cancelled: int = 0
    bad: int = 0
    dead_lettered: int = 0
    errors: list[str] = field(default_factory=list)
    files: list[DataFile] = field(default_factory=list)
    cancels: list[str] = field(default_factory=list)

    @property
    def far(self) -> int:
        """Number of rows in the files."""
        return sum(file.rows for file in self.files)


def summary(name: str, sent: int, messages: Sequence[CommitMessage], cancelled: int = 0) -> str:
    """Returns the line that the driver logs when a job is committed.

    Args:
        name: Name of the job.
        sent: Number of messages that all runs and attempts of the job have sent.
        messages: Reports of the tasks of the last run.
        cancelled: Number of tasks that were cancelled in the far tier.
    """
    labels = {
        "far": "in the far tier",
        "repeated": "sent before",
        "cancelled": "cancelled",
        "bad": "bad",
        "dead_lettered": "dead letters",
    }
    counts = {label: sum(getattr(message, name) for message in messages) for name, label in labels.items()}
    counts["cancelled"] += cancelled
    details = "".join(f", {count:,} {label}" for label, count in counts.items() if count)
    rows = sum(message.rows for message in messages)
    return f"job {name} is committed: {rows:,} rows, {sent:,} messages in all{details}"
