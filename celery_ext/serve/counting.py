"""What queues hold, as the API and the page count it: in a few round trips, however many queues there are."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from starlette.requests import Request

from celery_ext.serve.access.identity import caller_of
from celery_ext.serve.service import serve_of
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.counts import QueueCounts, QueueStats
from kombu_delayq.store.nodes import Cluster

T = TypeVar("T")

#: How late the oldest overdue message of a queue may be before the page says so, in ms. Transfers are faster than that.
LATE_MS = 5000.0
#: From how many s on the page says that ready messages wait for long.
WAITS_S = 300.0


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
    def is_late(self) -> bool:
        """Whether a message that no rate holds back is overdue for so long that somebody should look."""
        return self.stats.overdue_ms >= LATE_MS and self.counts.holding(self.stats) is None

    @property
    def waits_long(self) -> bool:
        """Whether ready messages wait for so long that somebody should look."""
        return self.stats.ready > 0 and self.paused_ms is None and (self.stats.oldest_ready_s or 0.0) >= WAITS_S


def count_queues(store: OperatorStore, queues: Sequence[str], cluster: Cluster | None) -> list[QueueState]:
    """Counts what queues hold.

    Args:
        store: The broker's store.
        queues: Their names.
        cluster: The nodes; None on a server without hash slots.
    """
    if not queues:
        return []
    stats = {found.queue: found for found in store.figures.overview(queues)}
    counts = store.figures.counts(queues)
    held, consumers = allowed(store, store.figures.held), allowed(store, store.consumers.by_queue)
    paused = allowed(store, store.fetching.paused) or {}
    return [
        QueueState(
            stats[queue],
            counts[queue],
            None if held is None else held.get(queue, 0),
            None if consumers is None else consumers[queue],
            paused.get(queue),
            *store.nodes.place_of(queue, cluster),
        )
        for queue in queues
    ]


def visible_queues(request: Request, store: OperatorStore | None = None) -> list[str]:
    """Returns the names of the queues that the caller may see: those that are known, of the app, or paused.

    Args:
        request: The request.
        store: The store that knows queues; by default the broker's, which fails while a journal's database is away.
    """
    serve = serve_of(request)
    store = store or serve.store
    paused = allowed(store, store.fetching.paused) or {}
    names = {*store.queues.names(), *serve.broker.app.amqp.queues, *paused}
    return caller_of(request).queues_of(sorted(names))


def allowed(store: OperatorStore, look: Callable[[], T]) -> T | None:
    """Returns what a function finds; None if Redis refuses it, such as for a missing right."""
    try:
        return look()
    except store.nodes.errors:
        return None
