"""Numbers of a queue: of its messages now, and of what has happened to them so far, as scripts have counted it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any

#: What somebody can do to messages: the names of the operations that ``QueueCounts.operations`` counts.
OPERATIONS = ("cancel", "reschedule", "run_now", "purge", "replay", "drop")
#: Upper bounds of the buckets of ``Lateness``, in s; the last bucket, which has none, is not among them.
LATENESS_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
#: What becomes of messages that are too late, by the names under which the scripts count it.
TOO_LATE = {"overdue_dropped": "dropped", "overdue_dead_lettered": "dead-lettered"}
#: For how long a queue counts as held back after the next messages could have left, in ms; then nobody transfers.
HELD_FOR_MS = 5000.0

#: Fields of the HASH of counters, and those of a bucket, in the order of `counts_of`.
FIELDS = (
    "lost",
    "redelivered",
    "late_us",
    *OPERATIONS,
    *TOO_LATE,
    "held_back",
    *(f"late:{at}" for at in range(len(LATENESS_BOUNDS_S) + 1)),
)
BUCKET_FIELDS = ("rate", "burst", "held")


@dataclass(frozen=True)
class QueueStats:
    """Numbers of one queue, all of one moment.

    Attributes:
        now_ms: Redis's clock.
        delayed: Number of messages that wait for their due time, overdue ones among them.
        ready: Number of messages that wait for a consumer.
        overdue: Number of delayed messages whose due time is past.
        next_due_ms: When the next delayed message is due, or None.
        error: Why Redis refuses to count the queue, whose numbers are 0 then; else empty.
        in_journal: How many of the delayed messages only a journal has.
    """

    queue: str
    now_ms: float
    delayed: int
    ready: int
    overdue: int
    next_due_ms: float | None
    error: str = ""
    in_journal: int = 0

    @property
    def overdue_ms(self) -> float:
        """How long the oldest overdue message has been due, 0 if none is."""
        return max(self.now_ms - self.next_due_ms, 0.0) if self.next_due_ms is not None else 0.0


@dataclass(frozen=True)
class Lateness:
    """How late messages were transferred, by Redis's clock.

    Attributes:
        buckets: For each of ``LATENESS_BOUNDS_S``, how many were late by no more than this.
        sum_s: By how much all of them were late together, in s; an estimate, see ``Figures.counts``.
        count: How many there were.
    """

    buckets: tuple[int, ...]
    sum_s: float
    count: int

    def quantile(self, share: float) -> float | None:
        """Returns the lateness in s that a share of all messages, from 0 to 1, had at most.

        Returns:
            An estimate, in proportion between two bounds; None without messages, ``inf`` beyond the last bound.

        Source: the same estimate as that of Prometheus's ``histogram_quantile``.
        """
        if not self.count:
            return None
        rank, before, low = share * self.count, 0, 0.0
        for bound, below in zip(LATENESS_BOUNDS_S, self.buckets, strict=True):
            if below >= rank and below > before:
                return low + (bound - low) * (rank - before) / (below - before)
            before, low = below, bound
        return inf


@dataclass(frozen=True)
class HeldBack:
    """How the rate of a queue holds back messages that are due, as its latest transfer has noted it.

    Attributes:
        per_s: Most messages a second.
        burst: How many may go at once after a pause.
        until_ms: When the next of them may leave, ms since the epoch.
    """

    per_s: float
    burst: float
    until_ms: float

    def lasts(self, now_ms: float) -> bool:
        """Whether messages are held back at a time, ms since the epoch; if not, nobody transfers them."""
        return now_ms < self.until_ms + HELD_FOR_MS

    def clear_ms(self, now_ms: float, waiting: int) -> float:
        """Returns about when as many messages have left as wait now, ms since the epoch, if no more come."""
        return max(now_ms, self.until_ms) + max(waiting - 1, 0) * 1000 / self.per_s


@dataclass(frozen=True)
class QueueCounts:
    """What has happened to the messages of a queue since it is counted.

    Attributes:
        transferred: How many were transferred because they were due.
        lost: How many index entries without a body a transfer has removed.
        redelivered: How many came back from the hands of a consumer, to be delivered again.
        operations: For each of ``OPERATIONS``, to how many messages it was done.
        lateness: How late the transferred messages were.
        too_late: For each of the values of ``TOO_LATE``, of how many messages that were too late it became that.
        rated: How many messages were transferred while the queue's rate held messages back.
        held_back: The rate that held messages back lately; None if none did. See ``holding``.
    """

    transferred: int
    lost: int
    redelivered: int
    operations: dict[str, int]
    lateness: Lateness
    too_late: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOO_LATE.values(), 0))
    rated: int = 0
    held_back: HeldBack | None = None

    def holding(self, stats: QueueStats) -> HeldBack | None:
        """Returns the rate that holds back the overdue messages of these figures; None if they should have left."""
        held = self.held_back
        return held if held is not None and stats.overdue and held.lasts(stats.now_ms) else None


def counts_of(values: Sequence[Any], bucket: Sequence[Any]) -> QueueCounts:
    """Returns what is in a HASH of counters, whose field ``late:2`` counts what fell between bound 2 and bound 3."""
    found = {name: _number(value) for name, value in zip(FIELDS, values, strict=False)}
    buckets = list(accumulate(found.get(f"late:{at}", 0) for at in range(len(LATENESS_BOUNDS_S) + 1)))
    sum_s = found.get("late_us", 0) / 1_000_000 + buckets[0] * LATENESS_BOUNDS_S[0] / 2
    return QueueCounts(
        buckets[-1],
        found.get("lost", 0),
        found.get("redelivered", 0),
        {name: found.get(name, 0) for name in OPERATIONS},
        Lateness(tuple(buckets[:-1]), max(sum_s, 0.0), buckets[-1]),
        {outcome: found.get(name, 0) for name, outcome in TOO_LATE.items()},
        found.get("held_back", 0),
        _held_back(bucket),
    )


def _held_back(values: Sequence[Any]) -> HeldBack | None:
    try:
        return HeldBack(*map(float, values)) if values and None not in values else None
    except ValueError:  # somebody else has written it
        return None


def _number(value: Any) -> int:
    try:
        return int(value or 0)
    except ValueError:  # somebody else has written it
        return 0
