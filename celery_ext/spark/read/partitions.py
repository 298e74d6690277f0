"""Cuts queues into partitions of equal size, one for each Spark task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from celery_ext.spark.read.selection import WaitingSelection
from kombu_delayq.store import SparkStore
from kombu_delayq.store.types import Part, QueueForm

#: Messages in a partition, unless the option ``partitions`` gives a number of partitions.
PARTITION_MESSAGES = 50_000


@dataclass
class WaitingPartition(InputPartition):
    """What one Spark task reads.

    Attributes:
        parts: Parts of one queue or of several.
        planned: Names of all queues in the plan, in the last partition if that also reads queues that come after the
            planning; else None. Spark plans a DataFrame or a view once, however long it is used.
    """

    parts: Sequence[Part]
    planned: frozenset[str] | None = None


def plan(store: SparkStore, selection: WaitingSelection, count: int | None) -> list[WaitingPartition]:
    """Cuts queues into partitions. The numbers of messages that wait in them now differ by one at most.

    Args:
        store: Store of the broker.
        selection: Which messages are selected.
        count: Number of partitions; None for one for every ``PARTITION_MESSAGES`` messages.

    Returns:
        The partitions: no more than there are messages, at least one.
    """
    names = store.queues.names() if selection.queues is None else list(dict.fromkeys(selection.queues))
    sizes = store.scan.sizes(names, selection.from_ms, selection.to_ms)
    total = sum(sizes.values())
    wanted = max(min(count or -(-total // PARTITION_MESSAGES), total), 1)
    # Numbers of messages, counted over all queues, after which a partition ends.
    ends = {total * n // wanted for n in range(1, wanted)}
    cut = [parts for parts in _cut(store, selection, sizes, ends) if parts] or [[]]
    partitions = [WaitingPartition(parts) for parts in cut]
    if selection.queues is None:
        partitions[-1].planned = frozenset(names)
    return partitions


def parts_of(store: SparkStore, selection: WaitingSelection, partition: WaitingPartition) -> Iterator[Part]:
    """Yields the parts that a partition reads: its own, and those of queues that came after the planning."""
    yield from partition.parts
    if partition.planned is not None:
        later = [name for name in store.queues.names() if name not in partition.planned]
        for parts in _cut(store, selection, store.scan.sizes(later), set()):
            yield from parts


def _cut(
    store: SparkStore, selection: WaitingSelection, sizes: Mapping[QueueForm, int], ends: set[int]
) -> list[list[Part]]:
    """Returns the parts of each partition, in order.

    Args:
        store: Store of the broker.
        selection: Which messages are selected.
        sizes: Number of messages of each queue in each layout.
        ends: Numbers of messages after which a partition ends.
    """
    partitions: list[list[Part]] = [[]]
    begin = 0
    for form, size in sizes.items():
        # Empty queues have a part too, in each layout: messages may come to them later.
        ranks = sorted(end - begin - 1 for end in ends if begin < end < begin + size)
        first, *others = store.scan.split(form.queue, ranks, selection.from_ms, selection.to_ms, form.layout)
        partitions[-1].append(first)
        partitions += [[part] for part in others]
        begin += size
        if size and begin in ends:
            partitions.append([])
    return partitions
