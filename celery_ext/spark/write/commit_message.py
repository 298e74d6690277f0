"""What the Spark tasks of a job tell the driver."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage


@dataclass
class CommitMessage(WriterCommitMessage):
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


def summary(name: str, sent: int, written: Sequence[CommitMessage]) -> str:
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
