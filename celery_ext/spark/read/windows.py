"""Cuts due times into windows of about equal size, one for each Spark task, where messages wait in several tiers.

A message moves from the journal to Redis before it is due, never back.
A Spark task reads the tiers of its window in this order and leaves out of Redis what it has seen before. So a message
that waits all the time is read once, also if it moves meanwhile.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf, nextafter
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from celery_ext.spark.read.selection import WaitingSelection
from kombu_delayq.store import SparkStore


class Weight(NamedTuple):
    """Messages that are due before a time, and after the weight before.

    Attributes:
        until_ms: The time, ms since the epoch.
        messages: How many they are.
    """

    until_ms: float
    messages: float


@dataclass
class WindowPartition(InputPartition):
    """The due times that one Spark task reads.

    Attributes:
        from_ms: Least due time, ms since the epoch.
        to_ms: End of the due times, ms since the epoch.
    """

    from_ms: float
    to_ms: float


def windows(selection: WaitingSelection, weights: Iterable[Weight], count: int) -> list[WindowPartition]:
    """Cuts the due times of a selection. Messages with the same due time are in one window.

    Args:
        selection: Which messages are selected.
        weights: How many messages are due when.
        count: Most windows.

    Returns:
        The windows, at least one; together they have all due times of the selection.
    """
    ordered = sorted(weights)
    share = sum(weight.messages for weight in ordered) / max(count, 1)
    ends: list[float] = []
    filled = 0.0
    for until_ms, messages in ordered:
        filled += messages
        if filled >= share * (len(ends) + 1) and len(ends) < count - 1 and until_ms > (ends or [-inf])[-1]:
            ends.append(until_ms)
    inner = [end for end in ends if selection.from_ms < end < selection.to_ms]
    return [
        WindowPartition(begin, end)
        for begin, end in zip([selection.from_ms, *inner], [*inner, selection.to_ms], strict=True)
    ]


def store_weights(store: SparkStore, selection: WaitingSelection, names: Collection[str], share: int) -> list[Weight]:
    """Returns how many messages of a store are due when.

    Args:
        store: Store of the broker.
        selection: Which messages are selected.
        names: The queues.
        share: Most messages in a weight.
    """
    found: list[Weight] = []
    for form, size in store.scan.sizes(names, selection.from_ms, selection.to_ms).items():
        ranks = range(share - 1, size - 1, share)
        parts = store.scan.split(form.queue, ranks, selection.from_ms, selection.to_ms, form.layout)
        # The last message of a part is in it.
        ends = [just_after(float(part.until[1])) for part in parts if part.until is not None]
        found += [Weight(end, share) for end in ends]
        rest = size - share * len(ends)
        if rest > 0:
            found.append(Weight(selection.to_ms, rest))
    return found


def just_after(due_ms: float) -> float:
    """Returns the least time after a due time that a double can have."""
    return nextafter(due_ms, inf)
