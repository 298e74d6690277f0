"""Which waiting messages are read, and how they are cut into one share of about equal size for each Spark task.

Where there is a journal, due times are cut into windows: a message moves from the journal to Redis before it is due,
never back. A Spark task reads the tiers of its window in this order and leaves out of Redis what it has seen before. So
a message that waits all the time is read once, also if it moves meanwhile.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, nextafter
from typing import Self

from pyspark.sql.datasource import InputPartition

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import ReadOptions
from celery_ext.spark.python_workers import log
from kombu_delayq.message import ms_of
from kombu_delayq.store import DelayedQueue, DelayStore, Part


@dataclass(frozen=True)
class WaitingSelection:
    """Queues and due times of the messages that are read.

    Attributes:
        queues: Names of the queues; None for all.
        from_ms: Earliest due time, ms since the epoch.
        to_ms: End of the due times, ms since the epoch; a message that is due then is left out.
    """

    queues: Collection[str] | None = None
    from_ms: float = -inf
    to_ms: float = inf

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Returns the selection that options describe.

        Raises:
            InvalidSparkOption: ``due_after`` is later than ``due_before``.
        """
        after, before = options.due_after, options.due_before
        if after is not None and before is not None and after > before:
            raise InvalidSparkOption(
                f"due_after={after.isoformat()} is later than due_before={before.isoformat()}; nothing is due between"
            )
        queues = None if options.queue is None else tuple(dict.fromkeys(options.queue))
        return cls(queues, -inf if after is None else ms_of(after), inf if before is None else ms_of(before))

    def names(self, store: DelayStore) -> list[str]:
        """Returns the names of the queues."""
        return list(store.queues.names() if self.queues is None else self.queues)

    def sizes(self, store: DelayStore, names: Sequence[str]) -> dict[DelayedQueue, int]:
        """Returns how many messages of queues are selected. Logs which of those that the user names have none."""
        sizes = store.scan.sizes(names, self.from_ms, self.to_ms)
        full = {delayed.queue for delayed, size in sizes.items() if size}
        for name in self.queues or ():
            if name not in full:
                text = f"nothing waits in the queue {name} until such a time; what is ready needs messages=ready"
                log(logging.WARNING, text)
        return sizes


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


def plan(store: DelayStore, selection: WaitingSelection, count: int | None) -> list[WaitingPartition]:
    """Cuts queues into partitions. The numbers of messages that wait in them now differ by one at most.

    Args:
        store: Store of the broker.
        selection: Which messages are selected.
        count: Number of partitions; None for one for every ``PARTITION_MESSAGES`` messages.

    Returns:
        The partitions: no more than there are messages, at least one.
    """
    names = selection.names(store)
    sizes = selection.sizes(store, names)
    total = sum(sizes.values())
    wanted = max(min(count or -(-total // PARTITION_MESSAGES), total), 1)
    # Numbers of messages, counted over all queues, after which a partition ends.
    ends = {total * n // wanted for n in range(1, wanted)}
    cut = [parts for parts in _cut(store, selection, sizes, ends) if parts] or [[]]
    partitions = [WaitingPartition(parts) for parts in cut]
    if selection.queues is None:
        partitions[-1].planned = frozenset(names)
    return partitions


def parts_of(store: DelayStore, selection: WaitingSelection, partition: WaitingPartition) -> Iterator[Part]:
    """Yields the parts that a partition reads: its own, and those of queues that came after the planning."""
    yield from partition.parts
    if partition.planned is not None:
        later = [name for name in store.queues.names() if name not in partition.planned]
        for parts in _cut(store, selection, store.scan.sizes(later), set()):
            yield from parts


def _cut(
    store: DelayStore, selection: WaitingSelection, sizes: Mapping[DelayedQueue, int], ends: set[int]
) -> list[list[Part]]:
    """Returns the parts of each partition, in order. A partition ends after each number of messages in ``ends``."""
    partitions: list[list[Part]] = [[]]
    begin = 0
    for delayed, size in sizes.items():
        # Empty queues have a part too, in each layout: messages may come to them later.
        ranks = sorted(end - begin - 1 for end in ends if begin < end < begin + size)
        first, *others = store.scan.split(delayed.queue, ranks, selection.from_ms, selection.to_ms, delayed.layout)
        partitions[-1].append(first)
        partitions += [[part] for part in others]
        begin += size
        if size and begin in ends:
            partitions.append([])
    return partitions


@dataclass
class WindowPartition(InputPartition):
    """The due times that one Spark task reads.

    Attributes:
        from_ms: Least due time, ms since the epoch.
        to_ms: End of the due times, ms since the epoch.
    """

    from_ms: float
    to_ms: float


def windows(store: DelayStore, selection: WaitingSelection, count: int | None) -> list[WindowPartition]:
    """Cuts the due times of a selection into windows. Messages with the same due time are in one window.

    Args:
        store: Store of the broker.
        selection: Which messages are selected.
        count: Most windows; None for one for about every ``PARTITION_MESSAGES`` messages.

    Returns:
        The windows, at least one; together they have all due times of the selection.
    """
    sizes = selection.sizes(store, selection.names(store))
    wanted = count or max(ceil(sum(sizes.values()) / PARTITION_MESSAGES), 1)
    of_window = max(ceil(sum(sizes.values()) / wanted), 1)
    # Windows have messages of several queues, so each queue is cut finer.
    step = max(of_window // min(len(sizes) or 1, 10), 1)
    cuts: list[float] = []
    for delayed, size in sizes.items():
        ranks = range(step - 1, size, step)
        parts = store.scan.split(delayed.queue, ranks, selection.from_ms, selection.to_ms, delayed.layout)
        # The last message of a part is in its window.
        cuts += [nextafter(float(part.until[1]), inf) for part in parts if part.until is not None]
    every = ceil(of_window / step)
    inner = {end for end in sorted(cuts)[every - 1 :: every][: wanted - 1] if end < selection.to_ms}
    return [WindowPartition(*ends) for ends in pairwise([selection.from_ms, *sorted(inner), selection.to_ms])]
