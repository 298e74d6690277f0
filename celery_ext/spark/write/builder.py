"""Makes the messages of one job."""

from collections.abc import Iterator

import pyarrow as pa

from celery_ext.spark import task_ids
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.batch import BatchBuilder
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.dead_letters import DeadLetterBuilder
from celery_ext.spark.write.schedule import Schedule
from celery_ext.spark.write.templates import Templates
from celery_ext.spark.write.types import BatchMessages, MessageSettings


class MessageBuilder:
    """Makes the messages of one job.

    Args:
        columns: What the columns of the rows mean.
        options: Options of the job.
        templates: Templates of the messages.
        schedule: When the tasks are due.
        job: Name of the job.
        repr_levels: Depth to which Celery shows arguments.
    """

    def __init__(
        self,
        columns: Columns,
        options: WriteOptions,
        templates: Templates,
        schedule: Schedule,
        job: str,
        repr_levels: int,
    ) -> None:
        salt = task_ids.digest(job)[:8]
        queue = options.dead_letter_queue
        letters = None if queue is None else DeadLetterBuilder(queue, templates, salt, repr_levels)
        self._settings = MessageSettings(columns, options, templates, schedule, salt, repr_levels, letters)

    def build(self, batch: pa.RecordBatch) -> BatchMessages:
        """Makes the messages of a batch."""
        return BatchBuilder(self._settings, batch).build() if batch.num_rows else BatchMessages({}, [], [])

    def parts(self, batch: pa.RecordBatch, rows: int) -> Iterator[BatchMessages]:
        """Makes the messages of a batch in parts, so that those of a part can be sent while the next is made.

        Args:
            batch: The batch.
            rows: Most rows in a part. A batch with a column ``op`` is one part: one search for many ids costs less.
        """
        if batch.num_rows <= rows or "op" in self._settings.columns.reserved:
            yield self.build(batch)
            return
        batch, known = BatchBuilder(self._settings, batch).by_due_time()
        for first in range(0, batch.num_rows, rows):
            part = batch.slice(first, rows)
            yield BatchBuilder(self._settings, part, known.at(range(first, first + part.num_rows))).build()
