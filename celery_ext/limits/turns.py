"""What a transfer worker that leads does for limits: no key waits because a wake-up was lost."""

from math import inf
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import ResponseError

from celery_ext.limits.store import LimitStore
from kombu_delayq.store import DelayStore
from kombu_delayq.text import readable

logger = get_logger(__name__)

#: The leader looks so often, in s: whether keys wait for nothing, which queues are consumed, and, in a fleet without
#: limits, whether there are any.
LOOK_S, QUEUES_S = 1.0, 10.0
#: For how long a queue has no consumer that knows limits, in s, before its messages go back to its lists; and about how
#: many of them at once.
UNCONSUMED_S, UNPARKED = 60.0, 1000


class Turns:
    """Ends rests that are over and wakes consumers. Puts messages back into lists where only stock consumers are left.

    It is the hook ``chore``, of which each transfer worker that leads makes one.
    """

    def __init__(self) -> None:
        self._next_at = self._looked_at = -inf
        self._consumed: list[str] = []
        self._since: dict[str, float] = {}
        self._error = ""

    def go_on(self, store: DelayStore) -> None:
        """Does what is to be done, if it is time; one round trip in most cases."""
        now = monotonic()
        if now < self._next_at:
            return
        self._next_at = now + LOOK_S
        limits = store.part(LimitStore)
        try:
            if now - self._looked_at >= QUEUES_S:
                self._looked_at = now
                self._look(store, limits, now)
            if self._consumed:
                limits.nudge(self._consumed)
            for queue in [queue for queue, since in self._since.items() if now - since >= UNCONSUMED_S]:
                self._unpark(limits, queue)
        except ResponseError as error:  # an ACL may forbid it, or a key has another type
            if str(error) != self._error:
                self._error = str(error)
                logger.info("limits by key are not looked after: %s", readable(error))

    def _look(self, store: DelayStore, limits: LimitStore, now: float) -> None:
        """Finds out which queues are consumed, and which others have messages in sub-queues."""
        known = limits.queues()
        leases = store.consumers.all() if known else []
        consumed = {queue for lease in leases if lease.left_ms > 0 and lease.knows_places for queue in lease.queues}
        self._consumed = sorted(known & consumed)
        left = [queue for queue in sorted(known - consumed) if limits.has_parked(queue)]
        self._since = {queue: self._since.get(queue, now) for queue in left}

    def _unpark(self, limits: LimitStore, queue: str) -> None:
        if moved := limits.unpark(queue, UNPARKED):
            self._next_at = -inf
            logger.warning(
                "queue %r has no consumer that knows limits by key: %d messages of its keys go back to its lists",
                readable(queue),
                moved,
            )
        else:
            del self._since[queue]
