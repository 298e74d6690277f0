"""Reads messages that are in the lists of queues, ready ones and dead letters, as rows, in Spark tasks."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from celery_ext.dead_letters import DeadLetter
from celery_ext.dead_letters.letters import browse, count
from celery_ext.spark.broker import Broker
from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import READY, ReadOptions
from celery_ext.spark.python_workers import log
from celery_ext.spark.read.batch import BATCH_BYTES, BATCH_ROWS
from celery_ext.spark.read.parse import as_json, int32, valid
from celery_ext.spark.read.schema import TOLD

#: What each column has of a message. A ready one is read as a letter that tells nothing.
_VALUES: dict[str, Callable[[DeadLetter], Any]] = {
    "queue": lambda letter: letter.buried_in,
    "task": lambda letter: letter.name,
    "task_id": lambda letter: letter.id,
    "eta": lambda letter: letter.task.eta,
    "priority": lambda letter: letter.priority,
    "retries": lambda letter: int32(letter.retries or letter.task.retries),  # a letter's task begins anew
    "args": lambda letter: as_json(letter.task.args),
    "kwargs": lambda letter: as_json(letter.task.kwargs),
    "size": lambda letter: len(letter.message),
    "raw": lambda letter: letter.message,
    **{name: attrgetter(name) for name in TOLD},
}


@dataclass
class QueuePartition(InputPartition):
    """The queue that one Spark task reads: a message keeps no place in a list from which others leave."""

    queue: str


class ListReader(DataSourceReader):
    """Reads the lists of queues. Pickled to executors.

    Args:
        broker: The broker.
        options: Which messages are read.
        schema: The columns of the DataFrame.

    Raises:
        InvalidSparkOption: An option is for messages that wait, or ready ones are wanted of no queue.
    """

    def __init__(self, broker: Broker, options: ReadOptions, schema: pa.Schema) -> None:
        wrong = [name for name in ("due_after", "due_before", "partitions") if getattr(options, name) is not None]
        if wrong:
            raise InvalidSparkOption(f"{', '.join(wrong)}: only messages that wait have that, not {options.messages}")
        if options.messages == READY and options.queue is None:
            raise InvalidSparkOption(f"messages={READY} needs the option queue: Redis has no list of all queues")
        self._broker, self._queues, self._schema = broker, options.queue, schema

    def partitions(self) -> list[InputPartition]:
        """Returns one for each queue. Logs which of those that the user names have no message.

        Raises:
            BrokerUnavailable: The broker does not answer.
        """
        with closing(self._broker.connect()) as store:
            for queue in self._queues or ():
                if not count(store, queue):
                    log(logging.WARNING, f"no message is in the queue {queue} itself")
            return [QueuePartition(queue) for queue in dict.fromkeys(self._queues or store.queues.of_letters())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the messages of a queue, priority by priority, the oldest first."""
        if not isinstance(partition, QueuePartition):
            return  # Spark's own, where there is no queue
        with closing(self._broker.connect()) as store:
            letters, size = list[DeadLetter](), 0
            for letter in browse(store, partition.queue):
                letters.append(letter)
                size += len(letter.message)
                if len(letters) >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield self._batch(letters)
                    letters, size = [], 0
            if letters:
                yield self._batch(letters)

    def _batch(self, letters: Sequence[DeadLetter]) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            values = map(_VALUES[field.name.lower()], letters)
            columns.append(pa.array([valid(each) if isinstance(each, str) else each for each in values], field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
