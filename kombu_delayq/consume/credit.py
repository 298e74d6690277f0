"""How many messages a channel may fetch, counted over all of its fetchers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import redis
from kombu.utils.scheduling import priority_cycle, round_robin_cycle, sorted_cycle

from kombu_delayq.consume.idle import WaitBudget
from kombu_delayq.consume.pipelined import PipelinedConnection

#: Most messages that one call fetches.
BATCH = 8


class CreditUser(Protocol):
    """What of a fetcher counts for the credit of its channel."""

    @property
    def waiting(self) -> int:
        """How many messages it has fetched and not delivered."""

    @property
    def asked(self) -> int:
        """How many messages may come in reply to its request."""


@dataclass(frozen=True)
class SharedByFetchers:
    """What the fetchers of a channel share. On a plain server it has one, in a cluster one for each queue.

    Attributes:
        share: What ``Keys.share`` returns for the fetcher's queues.
        pool_of: Returns the pool of the node that has these queues now.
        watch: Called with the file descriptor of a new connection.
        credit: The messages that the channel may fetch.
        pause: Lets no message come to any of the fetchers.
        budget: The connections on which the channel may wait for messages.
    """

    share: str
    pool_of: Callable[[], redis.ConnectionPool]
    watch: Callable[[int, PipelinedConnection], None]
    credit: "Credit"
    pause: Callable[[], None]
    budget: WaitBudget


class Credit:
    """The messages that a channel may fetch now: what ``prefetch_count`` leaves, and at most ``BATCH`` in one request.

    Args:
        channel: The channel.
        poller: The poller of its transport.
        fetchers: All fetchers of the channel.
    """

    def __init__(self, channel: Any, poller: Any, fetchers: Sequence[CreditUser]) -> None:
        self._channel = channel
        self._poller = poller
        self._fetchers = fetchers

    @property
    def left(self) -> int:
        """How many messages the channel may hold more, at most ``BATCH``. Requests on their way are not counted."""
        return min(self._free(), BATCH)

    def of(self, fetcher: CreditUser) -> int:
        """Returns how many messages a fetcher may ask for now.

        A request of another fetcher counts as if it brought all that it asks for. While one is on its way, a fetcher
        asks only once it may ask for ``BATCH``: many small requests cost Redis several times as much.
        """
        if len(self._fetchers) == 1:
            return self.left
        asked = sum(other.asked for other in self._fetchers)
        free = self._free() - asked
        return min(free, BATCH) if free >= BATCH or (free > 0 and not asked) else 0

    def _free(self) -> int:
        """Returns for how many messages the channel has credit, beside those that wait for delivery."""
        qos = self._channel.qos
        if not qos.can_consume():
            return 0
        credit = qos.can_consume_max_estimate()
        # Without a loop and a prefetch_count, a consumer gets one message with each call. Others get the rest.
        is_single = credit is None and not self._poller.loop_turns
        # Celery's worker_disable_prefetch replaces ``can_consume``. A queue cycle of the user's own may ask anything.
        cycle = type(self._channel._queue_cycle)
        if is_single or "can_consume" in vars(qos) or cycle not in (round_robin_cycle, priority_cycle, sorted_cycle):
            return 1 if len(self._fetchers) == 1 else 1 - self._waiting
        return BATCH * len(self._fetchers) if credit is None else max(credit - self._waiting, 0)

    @property
    def _waiting(self) -> int:
        return sum(fetcher.waiting for fetcher in self._fetchers)
