"""How many messages a channel may take, counted over all of its takers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import redis
from kombu.utils.scheduling import priority_cycle, round_robin_cycle, sorted_cycle

from kombu_delayq.consume.line import Line
from kombu_delayq.consume.waiters import Room

#: Most messages that one call takes.
BATCH = 8


class Claimant(Protocol):
    """What of a taker counts for the credit of its channel."""

    @property
    def waiting(self) -> int:
        """How many messages it has taken and not delivered."""

    @property
    def asked(self) -> int:
        """How many messages may come in reply to its request."""


@dataclass(frozen=True)
class Among:
    """What a taker shares with the other takers of its channel. Without a cluster there are none.

    Attributes:
        share: What ``Keys.share`` returns for its queues.
        pool_of: Returns the pool of the node that has them now.
        watch: Called with the file descriptor of a new connection.
        credit: The messages that the channel may take.
        pause: Sees to it that no message comes to any of the takers.
        room: Counts the connections of the channel that wait for messages.
    """

    share: str
    pool_of: Callable[[], redis.ConnectionPool]
    watch: Callable[[int, Line], None]
    credit: "Credit"
    pause: Callable[[], None]
    room: Room


class Credit:
    """The messages that a channel may take.

    Args:
        channel: The channel.
        poller: The poller of its transport.
        takers: All takers of the channel; in a cluster, one for each queue.
    """

    def __init__(self, channel: Any, poller: Any, takers: Sequence[Claimant]) -> None:
        self._channel = channel
        self._poller = poller
        self._takers = takers

    @property
    def left(self) -> int:
        """How many messages the channel has room for, up to ``BATCH``, requests on their way not counted."""
        return min(self._room(), BATCH)

    def of(self, taker: Claimant) -> int:
        """Returns how many messages a taker may ask for now.

        The others' requests are counted as if they brought all that they ask for. While any is on its way, a taker
        waits until it may ask for ``BATCH``: many small requests cost Redis several times as much.
        """
        if len(self._takers) == 1:
            return self.left
        asked = sum(other.asked for other in self._takers)
        room = self._room() - asked
        return min(room, BATCH) if room >= BATCH or (room > 0 and not asked) else 0

    def _room(self) -> int:
        qos = self._channel.qos
        if not qos.can_consume():
            return 0
        credit = qos.can_consume_max_estimate()
        # Such a consumer gets a message with each call, and leaves the others to other consumers.
        is_single = credit is None and not self._poller.loop_turns
        # Celery's worker_disable_prefetch replaces the method, and a cycle of the user's own may ask anything.
        cycle = type(self._channel._queue_cycle)
        if is_single or "can_consume" in vars(qos) or cycle not in (round_robin_cycle, priority_cycle, sorted_cycle):
            return 1 if len(self._takers) == 1 else 1 - self._waiting
        return BATCH * len(self._takers) if credit is None else max(credit - self._waiting, 0)

    @property
    def _waiting(self) -> int:
        return sum(taker.waiting for taker in self._takers)
