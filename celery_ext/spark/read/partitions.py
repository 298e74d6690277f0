"""What one Spark task reads of the queues: portions of as many messages each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from celery_ext.spark.read.selection import WaitingSelection
from kombu_delayq.store import SparkStore
from kombu_delayq.store.types import Part, QueueForm

#: Messages in a portion, unless the number of portions is given.
PARTITION_MESSAGES = 50_000


@dataclass
class WaitingPartition(InputPartition):
    """What one Spark task reads.

    Attributes:
        parts: Of one queue or of several.
        planned: In the last portion, when all queues are wanted, the names of those in any portion: it reads further
            queues as well. Spark goes on with a plan for as long as a DataFrame or a view is used.
    """

    parts: Sequence[Part]
    planned: frozenset[str] | None = None


def plan(store: SparkStore, selection: WaitingSelection, count: int | None) -> list[WaitingPartition]:
    """Cuts queues into portions, of as many messages each as wait just now, but for one.

    Args:
        store: Of the broker.
        selection: Which messages are wanted.
        count: How many portions are wanted.

    Returns:
        The portions, fewer where there are fewer messages, one at least.
    """
    names = store.queues.names() if selection.queues is None else selection.queues
    sizes = store.scan.sizes(names, selection.from_ms, selection.to_ms)
    total = sum(sizes.values())
    wanted = max(min(count or -(-total // PARTITION_MESSAGES), total), 1)
    ends = {total * n // wanted for n in range(1, wanted)}  # behind how many messages of all a portion ends
    portions = [WaitingPartition(parts) for parts in _cut(store, selection, sizes, ends) if parts] or [
        WaitingPartition([])
    ]
    if selection.queues is None:
        portions[-1].planned = frozenset(names)
    return portions


def parts_of(store: SparkStore, selection: WaitingSelection, portion: WaitingPartition) -> Iterator[Part]:
    """Yields what is to be read for a portion: its parts, and what has come since for the last one to read."""
    yield from portion.parts
    if portion.planned is not None:
        later = [name for name in store.queues.names() if name not in portion.planned]
        for parts in _cut(store, selection, store.scan.sizes(later), set()):
            yield from parts


def _cut(
    store: SparkStore, selection: WaitingSelection, sizes: Mapping[QueueForm, int], ends: set[int]
) -> list[list[Part]]:
    portions: list[list[Part]] = [[]]
    begin = 0
    for form, size in sizes.items():
        # An empty queue is read as well, in either form of backup, for what comes to it later.
        ranks = sorted(end - begin - 1 for end in ends if begin < end < begin + size)
        first, *others = store.scan.cut(form.queue, ranks, selection.from_ms, selection.to_ms, form.backup)
        portions[-1].append(first)
        portions += [[part] for part in others]
        begin += size
        if size and begin in ends:
            portions.append([])
    return portions
