"""How many messages a channel may fetch."""

from collections.abc import Callable, Sequence
from typing import Any

from kombu.utils.scheduling import priority_cycle, round_robin_cycle, sorted_cycle

from kombu_delayq.consume.waits import WaitBudget

#: Most messages that one call fetches.
BATCH = 32
#: The fewest messages that are asked for while others are still to be delivered: each call costs some time.
AHEAD = 4


class Credit:
    """The messages that a channel may fetch now: what ``prefetch_count`` leaves, and at most ``BATCH`` in one request.

    On a plain server a channel has one fetcher, in a cluster one for each queue.

    Args:
        channel: The channel.
        poller: The poller of its transport.
        fetchers: All fetchers of the channel, each a ``Fetcher``.
        budget: The connections on which they may wait for messages.
        pause: Lets no message come to any of them.
    """

    def __init__(
        self, channel: Any, poller: Any, fetchers: Sequence[Any], budget: WaitBudget, pause: Callable[[], None]
    ) -> None:
        self.budget, self.pause = budget, pause
        self._channel = channel
        self._poller = poller
        self._fetchers = fetchers

    @property
    def left(self) -> int:
        """How many messages the channel may hold more, at most ``BATCH``. Requests on their way are not counted."""
        return min(self._free(), BATCH)

    def of(self, fetcher: Any, *, ahead: bool = False) -> int:
        """Returns how many messages a fetcher may ask for now, none *ahead* while another one has yet to ask.

        A request of another fetcher counts as if it brought all that it asks for. While one is on its way, a fetcher
        asks only once it may ask for ``BATCH``: many small requests cost Redis several times as much.
        """
        if len(self._fetchers) == 1:
            return self.left
        if ahead and any(other.is_eager for other in self._fetchers):
            return 0
        asked = self._asked
        free = self._free() - asked
        return min(free, BATCH) if free >= BATCH or (free > 0 and not asked) else 0

    @property
    def free(self) -> int:
        """How many processes of the consumer are free for messages that take a place."""
        asked = self._asked if len(self._fetchers) > 1 else 0
        return max(int(self._channel.free()) - self._undelivered - asked, 0)

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
            return 1 if len(self._fetchers) == 1 else 1 - self._undelivered
        return BATCH * len(self._fetchers) if credit is None else max(credit - self._undelivered, 0)

    @property
    def _asked(self) -> int:
        """How many messages requests on their way may bring."""
        return sum(fetcher.asked for fetcher in self._fetchers)

    @property
    def _undelivered(self) -> int:
        return sum(fetcher.undelivered for fetcher in self._fetchers)
