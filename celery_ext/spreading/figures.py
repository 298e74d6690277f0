"""The figures of the parts of a queue together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TypeVar

from kombu_delayq.store.queues import QueueStats
from kombu_delayq.store.viewing.counts import HeldBack, Lateness, QueueCounts

T = TypeVar("T")


def stats_together(queue: str, several: Sequence[QueueStats]) -> QueueStats:
    """Returns the numbers of several queues as those of one, with the first error among them.

    Args:
        queue: The name of the one.
        several: The numbers, at least of one queue.
    """
    return replace(reduce(QueueStats.plus, several), queue=queue)


def counts_together(several: Sequence[QueueCounts]) -> QueueCounts:
    """Returns what has happened to the messages of several queues as of one; zeros of none."""
    if len(several) == 1:
        return several[0]
    return QueueCounts(
        sum(counts.transferred for counts in several),
        sum(counts.lost for counts in several),
        sum(counts.redelivered for counts in several),
        _sums(counts.operations for counts in several),
        Lateness(
            tuple(map(sum, zip(*(counts.lateness.buckets for counts in several), strict=True))),
            sum(counts.lateness.sum_s for counts in several),
            sum(counts.lateness.count for counts in several),
        ),
        _sums(counts.too_late for counts in several),
        sum(counts.rated for counts in several),
        _held_back([counts.held_back for counts in several if counts.held_back is not None]),
    )


def by_row(
    rows: Mapping[str, Sequence[str]], values: Mapping[str, T], together: Callable[[list[T]], T]
) -> dict[str, T]:
    """Returns a value for each row of which any queue has one.

    Args:
        rows: By name of a row, the queues that it stands for; see ``Spreads.rows``.
        values: By queue.
        together: Makes one value of several.
    """
    found = {name: [values[one] for one in members if one in values] for name, members in rows.items()}
    return {name: together(several) for name, several in found.items() if several}


def due_together(several: Sequence[Sequence[int]]) -> list[int]:
    """Returns how many messages of several queues come due in each bucket; the queues have the same buckets."""
    return [sum(column) for column in zip(*several, strict=True)]


def _sums(several: Iterable[dict[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for counts in several:
        for name, count in counts.items():
            found[name] = found.get(name, 0) + count
    return found


def _held_back(several: Sequence[HeldBack]) -> HeldBack | None:
    """Returns what holds back the messages of several queues: all their rates together."""
    if not several:
        return None
    return HeldBack(
        sum(held.per_s for held in several),
        sum(held.burst for held in several),
        min(held.until_ms for held in several),
    )
