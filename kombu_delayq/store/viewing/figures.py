"""The store's figures: how many messages are where, when they come due, and what has happened to them so far."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any

from redis.exceptions import NoPermissionError, ResponseError

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.client import ScriptCall, StorePart
from kombu_delayq.store.queues import QueueStats

#: What somebody can do to messages: the names of the operations that ``QueueCounts.operations`` counts.
OPERATIONS = ("cancel", "reschedule", "run_now", "purge", "replay", "drop")
#: Upper bounds of the buckets of ``Lateness``, in s; the last bucket, which has none, is not among them.
LATENESS_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
#: Most bounds that one call of ``due_counts`` goes through: with a million messages Redis is busy for about 1 ms.
BOUNDS_A_CALL = 250
#: Most queues in one round trip.
QUEUES_A_ROUND_TRIP = 500
#: Most messages in hand that one call of ``held_page`` looks at, and about the most bytes.
HELD_COUNT, HELD_BYTES = 500, 300_000

#: What becomes of messages that are too late, by the names under which the scripts count it.
TOO_LATE = {"overdue_dropped": "dropped", "overdue_dead_lettered": "dead-lettered"}
#: For how long a queue counts as held back after the next messages could have left, in ms; then nobody transfers.
HELD_FOR_MS = 5000.0

_FIELDS = (
    "lost",
    "redelivered",
    "late_us",
    *OPERATIONS,
    *TOO_LATE,
    "held_back",
    *(f"late:{at}" for at in range(len(LATENESS_BOUNDS_S) + 1)),
)
_BUCKET_FIELDS = ("rate", "burst", "held")


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


class Figures(StorePart):
    """Counts the messages of many queues at once. All calls are short, however much the queues hold."""

    def overview(self, queues: Sequence[str]) -> list[QueueStats]:
        """Counts the messages of queues, in either form of backup; one round trip for each few hundred queues.

        Returns:
            The numbers of each queue, in the order of ``queues``. Those of a queue that Redis refuses to count, such as
            for a key of another type, are 0, with the ``error``.

        Raises:
            redis.exceptions.NoPermissionError: The user's ACL allows none of the queues.
        """

        def look(forms: Sequence[str]) -> list[QueueStats]:
            replies = self._run_each("stats", [self._stats_call(queue, forms) for queue in queues])
            return [_stats(queue, reply) for queue, reply in zip(queues, replies, strict=True)]

        return self._client.in_each_form(look)

    def due_counts(self, queues: Sequence[str], bounds_ms: Sequence[float]) -> dict[str, list[int]]:
        """Counts how many messages of queues come due when; one round trip for each few hundred queues.

        Args:
            queues: Names of the queues.
            bounds_ms: Bounds of the buckets, ms since the epoch, ascending; ``inf`` with either sign is allowed.

        Returns:
            For each queue, how many of its messages are due from each bound on and before the next one, so one number
            less than there are bounds. A queue that Redis refuses to count is left out.

        Raises:
            redis.exceptions.NoPermissionError: The user's ACL allows none of the queues.
        """
        spans = range(0, len(bounds_ms) - 1, BOUNDS_A_CALL)
        slices = [[repr(float(bound)) for bound in bounds_ms[at : at + BOUNDS_A_CALL + 1]] for at in spans]

        def look(forms: Sequence[str]) -> dict[str, list[int]]:
            calls: list[ScriptCall] = [
                ([self._client.due(queue, forms[0]), self._client.due(queue, forms[-1])], bounds, forms[0])
                for queue in queues
                for bounds in slices
            ]
            replies = iter(self._run_each("due_counts", calls))
            parts = {queue: [next(replies) for _ in slices] for queue in queues}
            return {
                queue: [count for part in found for count in part]
                for queue, found in parts.items()
                if not any(isinstance(part, Exception) for part in found)
            }

        return self._client.in_each_form(look)

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Reads what the scripts have counted; one round trip for each few hundred queues.

        The counters of a queue only grow. They begin at 0 when the queue is forgotten or expires. The sum of the
        lateness is an estimate: a message that is late by no more than the first bound counts half of it. Of other
        batches the script reads the due times of the first and of the last message, and takes those between as evenly
        spread.

        Returns:
            The counters of each queue; zeros for a queue of which nothing is counted.
        """
        commands: list[Command] = []
        for queue in queues:
            commands.append(("HMGET", self._keys.counts(queue), *_FIELDS))
            commands.append(("HMGET", self._keys.bucket(queue), *_BUCKET_FIELDS))
        replies = [
            reply
            for at in range(0, len(commands), QUEUES_A_ROUND_TRIP)
            for reply in self._client.replies(commands[at : at + QUEUES_A_ROUND_TRIP])
        ]
        for reply in replies:
            if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
                raise reply
        rows = [[] if isinstance(reply, Exception) else reply for reply in replies]
        return {
            queue: _counts(*pair) for queue, pair in zip(queues, zip(rows[::2], rows[1::2], strict=True), strict=True)
        }

    def held(self, most: int = 100_000) -> dict[str, int]:
        """Counts the messages in the hands of consumers, by queue; a round trip for each 500, or 300 kB.

        Consumers of stock kombu note no queue, so their messages are counted by routing key. Messages come and go
        meanwhile, so with more than a page the numbers are no snapshot.

        Args:
            most: How many messages to look at, about; those that are held for longest come first.
        """
        found, start, looked = Counter[str](), 0, 1
        while looked and start < most:
            looked, page = self.held_page(start)
            found.update(page)
            start += looked
        return dict(found)

    def held_page(self, start: int) -> tuple[int, Counter[str]]:
        """Counts some messages in the hands of consumers, as ``held`` does; one round trip.

        Args:
            start: How many messages to skip, those that are held for longest.

        Returns:
            How many messages it has looked at, 0 at the end; and their number by queue.
        """
        keys, found = [self._keys.unacked_index, self._keys.unacked], Counter[str]()
        looked, *rows = self._client.run("held_page", keys, [start, HELD_COUNT, HELD_BYTES])
        for tail, count in zip(rows[0::2], rows[1::2], strict=True):
            found[_name_in(tail)] += count
        return looked, found

    def dead_letter_queues(self) -> list[str]:
        """Returns the names of the queues into which dead letters were put."""
        return sorted(map(as_text, self._client.redis.smembers(self._keys.dead_letters)))

    def _stats_call(self, queue: str, forms: Sequence[str]) -> ScriptCall:
        dues = [self._client.due(queue, forms[0]), self._client.due(queue, forms[-1])]
        return [*dues, *self._client.ready(queue)], [], forms[0]

    def _run_each(self, operation: str, calls: Sequence[ScriptCall]) -> list[Any]:
        """Runs a script for each call. Errors of single queues are among the replies.

        Raises:
            redis.exceptions.NoPermissionError: All are refused.
            Exception: Any error that is no refusal of Redis.
        """
        pages = (calls[at : at + QUEUES_A_ROUND_TRIP] for at in range(0, len(calls), QUEUES_A_ROUND_TRIP))
        replies = [reply for page in pages for reply in self._client.run_each(operation, page)[0]]
        for reply in replies:
            if isinstance(reply, Exception) and not isinstance(reply, ResponseError):
                raise reply
        if replies and all(isinstance(reply, NoPermissionError) for reply in replies):
            raise replies[0]
        return replies


def _stats(queue: str, reply: Any) -> QueueStats:
    if isinstance(reply, Exception):
        return QueueStats(queue, 0.0, 0, 0, 0, None, error=str(reply))
    now, delayed, ready, overdue, head = reply
    return QueueStats(queue, float(now), delayed, ready, overdue, float(head) if head else None)


def _counts(values: Sequence[Any], bucket: Sequence[Any]) -> QueueCounts:
    """Returns what is in a HASH of counters, whose field ``late:2`` counts what fell between bound 2 and bound 3."""
    found = {name: _number(value) for name, value in zip(_FIELDS, values, strict=False)}
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


def _name_in(tail: Any) -> str:
    """Returns the name in the end of a note, which is a JSON text; empty where there is none."""
    try:
        name = json.loads(as_text(tail))
    except ValueError:
        return ""
    return name if isinstance(name, str) else ""
