"""What a batch of rows is made with, and what becomes of it."""

from collections.abc import Sequence
from typing import NamedTuple

from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.dead_letters import DeadLetterBuilder
from celery_ext.spark.write.schedule import Schedule
from celery_ext.spark.write.templates import Templates
from kombu_delayq.store.types import Offer


class MessageSettings(NamedTuple):
    """What the messages of one job depend on.

    Attributes:
        columns: What the columns of the rows mean.
        options: Options of the job.
        templates: Templates of the messages.
        schedule: When the tasks are due.
        salt: 8 hex digits that stand for the job.
        repr_levels: Depth to which Celery shows arguments.
        dead_letters: Makes the dead letters; None when the job has no queue for them.
    """

    columns: Columns
    options: WriteOptions
    templates: Templates
    schedule: Schedule
    salt: str
    repr_levels: int
    dead_letters: DeadLetterBuilder | None


class BatchMessages(NamedTuple):
    """What a batch of rows has become.

    Attributes:
        offers: Messages, by the queue that they go to.
        cancelled: Ids of the tasks that are to be cancelled.
        bad_rows: For each row that makes no task, what is wrong, and its dead letter if the job has a queue for it.
    """

    offers: dict[str, list[Offer]]
    cancelled: list[str]
    bad_rows: list[tuple[str, Offer | None]]


class Known(NamedTuple):
    """What is known of some rows before their messages are made.

    Attributes:
        digests: Result of ``TaskFields.digests`` for these rows, or None.
        due_us: Result of ``Schedule.due_us`` for these rows, or None.
    """

    digests: Sequence[str] | None = None
    due_us: Sequence[int | None] | None = None

    def at(self, rows: Sequence[int]) -> "Known":
        """Returns what is known of the rows with these numbers."""
        digests, due_us = self
        return Known(digests and [digests[row] for row in rows], due_us and [due_us[row] for row in rows])


NOTHING_KNOWN = Known()
