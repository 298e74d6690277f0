"""The one count of what queues hold, and the one judge of it: from where on something is not well, and how bad it is.

The checks of the doctor, the page, the API, ``delayq status`` and the alerts say so, each in its own form.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from redis.exceptions import RedisError

from kombu_delayq.store import NO_PLACE, Cluster, DelayStore, QueueCounts, QueueStats, counts_of


class Level(StrEnum):
    """How bad something is."""

    OK = "ok"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"

    @property
    def is_bad(self) -> bool:
        """Whether somebody has to do something."""
        return self in (Level.WARNING, Level.ERROR)


#: From how many s on an overdue message is a warning, transfers being faster than that; and an error.
OVERDUE_S, LONG_OVERDUE_S = 5.0, 60.0
#: From how many s on ready messages wait for long.
WAITS_S = 600.0
#: From which part of its memory on a server is nearly full, and full.
NEARLY_FULL, FULL = 0.8, 0.95


def of_leader(*, leads: bool, delayed: int) -> Level:
    """Judges whether somebody transfers: where nobody does, and messages wait, these will not be delivered."""
    if leads:
        return Level.OK
    return Level.ERROR if delayed else Level.WARNING


def of_overdue(overdue_s: float, *, is_held: bool) -> Level:
    """Judges the oldest overdue message of a queue, 0 s for none; what a rate holds back is meant to be late."""
    if is_held or overdue_s < OVERDUE_S:
        return Level.OK
    return Level.ERROR if overdue_s >= LONG_OVERDUE_S else Level.WARNING


def of_waits(oldest_s: float | None, *, is_paused: bool) -> Level:
    """Judges for how long the oldest ready message of a queue has waited, None if nobody knows."""
    return Level.WARNING if not is_paused and (oldest_s or 0.0) >= WAITS_S else Level.OK


def of_consumers(work: int, consumers: int | None, unacked: int | None, *, is_of_letters: bool) -> Level:
    """Judges whether somebody consumes a queue.

    Args:
        work: How many of its messages are ready or overdue.
        consumers: How many consumers are known; None if nobody may know.
        unacked: How many messages consumers have, known or not.
        is_of_letters: Whether it is a queue of dead letters, which nobody should consume.
    """
    return Level.WARNING if work and consumers == 0 and not unacked and not is_of_letters else Level.OK


def of_memory(filled: float) -> Level:
    """Judges which part of its memory a server uses."""
    if filled < NEARLY_FULL:
        return Level.OK
    return Level.ERROR if filled >= FULL else Level.WARNING


class QueueState(NamedTuple):
    """What a queue holds.

    Attributes:
        stats: Its messages; with an error, why Redis refuses to count them.
        counts: What has happened to its messages.
        unacked: How many messages consumers have; None if the server's Redis user may not know it.
        consumers: How many consumers live; None if the server's Redis user may not know it.
        paused_ms: Since when it is paused, ms since the epoch; None if it is not.
        slot: Its hash slot; None on a server without slots.
        node: Address of the node that serves the slot; None if nobody does, or it is not known.
    """

    stats: QueueStats
    counts: QueueCounts
    unacked: int | None
    consumers: int | None
    paused_ms: float | None
    slot: int | None
    node: str | None

    @property
    def of_overdue(self) -> Level:
        """How bad it is that messages are overdue."""
        overdue_s = self.stats.overdue_ms / 1000 if self.stats.overdue else 0.0
        return of_overdue(overdue_s, is_held=self.counts.holding(self.stats) is not None)

    @property
    def of_waits(self) -> Level:
        """How bad it is that ready messages wait."""
        return of_waits(self.stats.oldest_ready_s if self.stats.ready else 0.0, is_paused=self.paused_ms is not None)

    def of_consumers(self, *, is_of_letters: bool) -> Level:
        """How bad it is that nobody consumes it."""
        work = self.stats.ready + self.stats.overdue
        return of_consumers(work, self.consumers, self.unacked, is_of_letters=is_of_letters)


def count_queues(store: DelayStore, queues: Sequence[str], cluster: Cluster | None) -> list[QueueState]:
    """Counts what queues hold.

    Args:
        store: The broker's store.
        queues: Their names.
        cluster: The nodes; None on a server without hash slots.
    """
    if not queues:
        return []
    stats = {found.queue: found for found in overview_of(store, queues)}
    held = [queue for queue, found in stats.items() if found.overdue]
    counts = store.if_allowed(lambda: store.figures.counts(queues, held)) or dict.fromkeys(queues, counts_of({}, []))
    unacked, consumers = store.if_allowed(store.figures.held), store.if_allowed(store.consumers.by_queue)
    paused = store.if_allowed(store.fetching.paused) or {}
    return [
        QueueState(
            stats[queue],
            counts[queue],
            None if unacked is None else unacked.get(queue, 0),
            None if consumers is None else consumers[queue],
            paused.get(queue),
            *(NO_PLACE if cluster is None else cluster.place_of(queue)),
        )
        for queue in queues
    ]


def overview_of(store: DelayStore, queues: Sequence[str]) -> list[QueueStats]:
    """Counts the messages of queues as ``Figures.overview`` does, also while the nodes of all of them are away."""
    try:
        return store.figures.overview(queues)
    except (RedisError, OSError) as error:
        if not store.pool.is_partial(error):
            raise
        return [QueueStats.uncounted(queue, error) for queue in queues]
