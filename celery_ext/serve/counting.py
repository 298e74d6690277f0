"""What queues hold, as the API and the page count it: in a few round trips, however many queues there are."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from redis.exceptions import RedisError
from starlette.requests import Request

from celery_ext.doctor import Level, judge
from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.service import serve_of
from celery_ext.waiting import all_queues
from kombu_delayq.cluster import Cluster, Nodes
from kombu_delayq.store import DelayStore, QueueCounts, QueueStats, counts_of

T = TypeVar("T")


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
        return judge.of_overdue(overdue_s, is_held=self.counts.holding(self.stats) is not None)

    @property
    def of_waits(self) -> Level:
        """How bad it is that ready messages wait."""
        return judge.of_waits(
            self.stats.oldest_ready_s if self.stats.ready else 0.0, is_paused=self.paused_ms is not None
        )

    def of_consumers(self, *, is_of_letters: bool) -> Level:
        """How bad it is that nobody consumes it."""
        work = self.stats.ready + self.stats.overdue
        return judge.of_consumers(work, self.consumers, self.unacked, is_of_letters=is_of_letters)


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
    counts = store.unless_away(lambda: store.figures.counts(queues, held)) or dict.fromkeys(queues, counts_of({}, []))
    unacked, consumers = store.if_allowed(store.figures.held), store.if_allowed(store.consumers.by_queue)
    paused = store.if_allowed(store.fetching.paused) or {}
    return [
        QueueState(
            stats[queue],
            counts[queue],
            None if unacked is None else unacked.get(queue, 0),
            None if consumers is None else consumers[queue],
            paused.get(queue),
            *store.part(Nodes).place_of(queue, cluster),
        )
        for queue in queues
    ]


def visible_queues(request: Request, store: DelayStore | None = None) -> list[str]:
    """Returns the names of the queues that the caller may see.

    While the node of a cluster is away that knows the others, these are those of the app.

    Args:
        request: The request.
        store: The store that knows queues; by default the broker's, which fails while a journal's database is away.
    """
    serve = serve_of(request)
    names = all_queues(store or serve.store, serve.broker.app, serve.settings.dead_letters)
    return caller_of(request).queues_of(names)


def overview_of(store: DelayStore, queues: Sequence[str]) -> list[QueueStats]:
    """Counts the messages of queues as ``Figures.overview`` does, also while the nodes of all of them are away."""
    try:
        return store.figures.overview(queues)
    except (RedisError, OSError) as error:
        if not store.pool.is_partial(error):
            raise
        return [QueueStats.uncounted(queue, error) for queue in queues]
