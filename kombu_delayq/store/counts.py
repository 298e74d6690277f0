"""Numbers of a queue: of its messages now, and of what has happened to them so far, as scripts have counted it."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from time import time
from typing import Any

from kombu_delayq.message import Message, eta_of, later, ready_since_s
from kombu_delayq.redis import checked
from kombu_delayq.text import as_text

#: What somebody can do to messages: the names of the operations that ``QueueCounts.operations`` counts.
OPERATIONS = ("cancel", "reschedule", "run_now", "purge", "replay", "drop")
#: Upper bounds of the buckets of how late messages are, in s; the last bucket, which has none, is not among them.
LATENESS_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
#: Upper bounds of the buckets of how long messages wait in their queue, in s, as precise as ``timestamp``.
WAIT_BOUNDS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0)
#: Fields of the HASH of counters: the seconds that messages have waited, how many waited nobody knows how long, and the
#: buckets.
WAITED_S, WAITED_UNKNOWN = "waited_s", "waited_unknown"
WAIT_FIELDS = tuple(f"waited:{at}" for at in range(len(WAIT_BOUNDS_S) + 1))
#: The counters of waits of a queue, in the order of the numbers that ``QueueWaits`` keeps of it.
_WAITS = (*WAIT_FIELDS, WAITED_S, WAITED_UNKNOWN)
_SUM_AT, _UNKNOWN_AT = len(WAIT_FIELDS), len(WAIT_FIELDS) + 1
#: Adds to counters in Redis; see ``Figures.count_minute``.
Count = Callable[[Mapping[str, Mapping[str, int]]], dict[str, Exception]]
#: A time from here on, in s since the epoch, is none: any program may write numbers that fit no clock and no counter.
_LATEST_S = 2.0**40
#: What becomes of messages that are too late, by the names under which the scripts count it.
TOO_LATE = {"overdue_dropped": "dropped", "overdue_dead_lettered": "dead-lettered"}
#: What becomes of tasks that fail, by the names under which the scripts count it: who sees it counts it.
FAILURES = {"retried": "retried", "failed": "failed", "dead": "dead-lettered", "unknown": "not known"}
#: For how long a queue counts as held back after the next messages could have left, in ms; then nobody transfers.
HELD_FOR_MS = 5000.0

#: Fields of the HASH of counters that count how late messages were.
LATE_FIELDS = tuple(f"late:{at}" for at in range(len(LATENESS_BOUNDS_S) + 1))
#: Fields of a bucket, in the order of ``HeldBack``.
BUCKET_FIELDS = ("rate", "burst", "held")


@dataclass(frozen=True)
class QueueStats:
    """Numbers of one queue, all of one moment.

    Attributes:
        now_ms: Redis's clock.
        delayed: Number of messages that wait for their due time, overdue ones among them.
        ready: Number of messages that wait for a consumer.
        limited: How many of these may not go now, because of a limit by key.
        overdue: Number of delayed messages whose due time is past.
        next_due_ms: When the next delayed message is due, or None.
        error: Why Redis refuses to count the queue, whose numbers are 0 then; else empty.
        beside: How many of the delayed messages wait beside Redis alone.
        ready_since_ms: Since when the oldest ready message could have been consumed, ms since the epoch: of those that
            are next, one in the list of each priority. None if none is ready, or if no message says it.
        is_passing: Whether the error passes, such as that of a node of a cluster that is away.
    """

    queue: str
    now_ms: float
    delayed: int
    ready: int
    overdue: int
    next_due_ms: float | None
    error: str = ""
    beside: int = 0
    ready_since_ms: float | None = None
    is_passing: bool = False
    limited: int = 0

    @property
    def overdue_ms(self) -> float:
        """How long the oldest overdue message has been due, 0 if none is."""
        return max(self.now_ms - self.next_due_ms, 0.0) if self.next_due_ms is not None else 0.0

    @property
    def oldest_ready_s(self) -> float | None:
        """How long the oldest ready message has been waiting for a consumer, in s; 0 if none is ready, None if unknown.

        A time of the publisher's clock is taken from Redis's clock. Messages that may not go now do not count.
        """
        if self.ready_since_ms is None:
            return None if self.ready > self.limited else 0.0
        return max(self.now_ms - self.ready_since_ms, 0.0) / 1000

    @classmethod
    def of(cls, queue: str, reply: Sequence[Any]) -> "QueueStats":
        """Returns the numbers in a reply of ``stats``."""
        now, delayed, ready, overdue, head, limited, *next_ready = reply
        moments = map(_since_s, next_ready[0::2], next_ready[1::2])
        since_ms = min((1000 * moment for moment in moments if moment is not None), default=None)
        due_ms = float(head) if head else None
        return cls(queue, float(now), delayed, ready, overdue, due_ms, ready_since_ms=since_ms, limited=limited)

    @classmethod
    def uncounted(cls, queue: str, error: Exception, *, is_passing: bool = False) -> "QueueStats":
        """Returns the numbers of a queue that cannot be counted."""
        return cls(queue, 0.0, 0, 0, 0, None, error=str(error), is_passing=is_passing)


class QueueWaits:
    """Counts how long messages waited in their queues: in memory, and now and then in Redis.

    One thread calls ``note``, another one may call ``flush``.
    """

    def __init__(self) -> None:
        self._noted: dict[str, list[int]] = {}
        self._flushed: dict[str, list[int]] = {}

    def begin(self, queue: str) -> None:
        """Counts the messages of a queue from now on."""
        self._noted.setdefault(queue, [0] * len(_WAITS))

    def note(self, queue: str, message: Message) -> None:
        """Counts a message that a consumer takes now. One whose time has not come is not counted: it goes back."""
        numbers = self._noted.get(queue)
        if numbers is None:
            return
        since_s = ready_since_s(message)
        if since_s is None or not 0 <= since_s < _LATEST_S:
            numbers[_UNKNOWN_AT] += 1
            return
        # Both are whole seconds, so that neither is taken for the longer one.
        waited_s = int(time()) - int(since_s)
        if waited_s >= 0:
            numbers[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
            numbers[_SUM_AT] += waited_s

    def flush(self, count: Count) -> None:
        """Adds to the counters in Redis what has come since the last time; one round trip where anything has.

        Raises:
            redis.exceptions.RedisError, OSError: Redis has not counted, or not all queues. The next call tries again.
        """
        now = {queue: list(numbers) for queue, numbers in list(self._noted.items())}
        grown = {queue: self._grown(queue, numbers) for queue, numbers in now.items()}
        if changed := {queue: counters for queue, counters in grown.items() if counters}:
            errors = count(changed)
            self._flushed.update({queue: now[queue] for queue in changed.keys() - errors})
            checked(errors.values())

    def _grown(self, queue: str, numbers: list[int]) -> dict[str, int]:
        before = self._flushed.get(queue) or [0] * len(_WAITS)
        return {name: new - old for name, new, old in zip(_WAITS, numbers, before, strict=True) if new != old}


def _since_s(timestamp: Any, eta: Any) -> float | None:
    return later(float(timestamp) if timestamp else None, eta_of({"headers": {"eta": as_text(eta)}}))


@dataclass(frozen=True)
class Histogram:
    """How long something took, of many messages.

    Attributes:
        bounds_s: Upper bounds of the buckets, in s.
        buckets: For each bound, of how many messages it took no longer than this.
        sum_s: How long it took of all of them together, in s.
        count: How many there were.
    """

    bounds_s: tuple[float, ...]
    buckets: tuple[int, ...]
    sum_s: float
    count: int

    def quantile(self, part: float) -> float | None:
        """Returns how long it took at most, in s, of a share of all messages, from 0 to 1.

        Returns:
            An estimate, in proportion between two bounds; None without messages, ``inf`` beyond the last bound.

        Source: the same estimate as that of Prometheus's ``histogram_quantile``.
        """
        rank = part * self.count
        if not rank:
            return None
        before, low = 0, 0.0
        for bound, below in zip(self.bounds_s, self.buckets, strict=True):
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
        lateness: How late messages were transferred, by Redis's clock; the sum is an estimate, see ``Figures.counts``.
        too_late: For each of the values of ``TOO_LATE``, of how many messages that were too late it became that.
        held_back: The rate that held messages back lately; None if none did. See ``holding``.
        waits: How long messages waited in the queue before a worker took them, by the worker's clock.
        waits_unknown: How many more a worker took of which no property says since when it could have taken them.
        failures: For each of the values of ``FAILURES``, of how many tasks that failed it became that.
    """

    transferred: int
    lost: int
    redelivered: int
    operations: dict[str, int]
    lateness: Histogram
    waits: Histogram
    too_late: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOO_LATE.values(), 0))
    held_back: HeldBack | None = None
    waits_unknown: int = 0
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURES.values(), 0))

    def holding(self, stats: QueueStats) -> HeldBack | None:
        """Returns the rate that holds back the overdue messages of these figures; None if they should have left."""
        held = self.held_back
        return held if held is not None and stats.overdue and held.lasts(stats.now_ms) else None


def counts_of(counters: Mapping[Any, Any], bucket: Sequence[Any]) -> QueueCounts:
    """Returns what is in a HASH of counters, whose field ``late:2`` counts what fell between bound 2 and bound 3."""
    found = {as_text(name): _number(value) for name, value in counters.items()}
    late_s = found.get("late_us", 0) / 1_000_000 + found.get("late:0", 0) * LATENESS_BOUNDS_S[0] / 2
    lateness = _histogram(found, LATENESS_BOUNDS_S, LATE_FIELDS, max(late_s, 0.0))
    return QueueCounts(
        lateness.count,
        found.get("lost", 0),
        found.get("redelivered", 0),
        {name: found.get(name, 0) for name in OPERATIONS},
        lateness,
        _histogram(found, WAIT_BOUNDS_S, WAIT_FIELDS, found.get(WAITED_S, 0)),
        {outcome: found.get(name, 0) for name, outcome in TOO_LATE.items()},
        _held_back(bucket),
        found.get(WAITED_UNKNOWN, 0),
        {outcome: found.get(name, 0) for name, outcome in FAILURES.items()},
    )


def _histogram(found: Mapping[str, int], bounds_s: tuple[float, ...], fields: Sequence[str], sum_s: float) -> Histogram:
    buckets = list(accumulate(found.get(name, 0) for name in fields))
    return Histogram(bounds_s, tuple(buckets[:-1]), sum_s, buckets[-1])


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
