"""What one Spark task reads of the queues: portions of as many messages each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from celery_ext.spark.filters import Selection
from kombu_delayq.results import Part, QueueForm
from kombu_delayq.store import DelayStore

#: Messages in a portion, unless the number of portions is given.
PORTION = 50_000


@dataclass
class Portion(InputPartition):
    """What one Spark task reads.

    Attributes:
        parts: Of one queue or of several.
    """

    parts: Sequence[Part]


def plan(store: DelayStore, selection: Selection, count: int | None) -> list[Portion]:
    """Cuts queues into portions, of as many messages each as wait just now, but for one.

    Args:
        store: Of the broker.
        selection: Which messages are wanted.
        count: How many portions are wanted.

    Returns:
        The portions, fewer where there are fewer messages, one at least.
    """
    names = store.queues() if selection.queues is None else selection.queues
    sizes = store.sizes(names, selection.from_ms, selection.to_ms)
    total = sum(sizes.values())
    wanted = max(min(count or -(-total // PORTION), total), 1)
    ends = {total * n // wanted for n in range(1, wanted)}  # behind how many messages of all a portion ends
    return [Portion(parts) for parts in _cut(store, selection, sizes, ends) if parts] or [Portion([])]


def _cut(store: DelayStore, selection: Selection, sizes: Mapping[QueueForm, int], ends: set[int]) -> list[list[Part]]:
    portions: list[list[Part]] = [[]]
    begin = 0
    for form, size in sizes.items():
        # An empty queue is read as well, in either form of backup: Spark goes on with this plan as long as a DataFrame
        # is used.
        ranks = sorted(end - begin - 1 for end in ends if begin < end < begin + size)
        first, *others = store.cut(form.queue, ranks, selection.from_ms, selection.to_ms, form.backup)
        portions[-1].append(first)
        portions += [[part] for part in others]
        begin += size
        if size and begin in ends:
            portions.append([])
    return portions
