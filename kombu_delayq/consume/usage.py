"""Notes in Redis, now and then, which queues are consumed, so that they do not expire."""

from collections.abc import Iterable
from math import inf
from time import monotonic
from typing import Any

from kombu.log import get_logger
from redis.exceptions import RedisError

logger = get_logger(__name__)

#: A consumer puts off the expiry of its queue again and again, each time after a third of the queue's x-expires.
KEEP_ALIVE_SHARE = 1 / 3
#: A consumer keeps its queues alive at least so often, in s.
KEEP_ALIVE_S = 60.0
#: Pause in s after a failed attempt.
RETRY_S = 1.0


class Usage:
    """Keeps the queues alive that a channel consumes.

    The consumer does so itself, because it may run no transfer worker, and the transfer worker of another process does
    not know the x-expires of its queues.

    Args:
        channel: A channel of one of our transports.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._next_at: dict[str, float] = {}

    def of(self, queues: Iterable[str]) -> None:
        """Notes that queues are consumed. A caller may call it for every message, because it rarely asks Redis."""
        now = monotonic()
        for queue in [queue for queue in queues if self._next_at.get(queue, -inf) <= now]:
            self._next_at[queue] = now + self._keep_alive(queue)

    def anew(self, queue: str) -> None:
        """Keeps a queue alive with the next ``of``, such as after it was declared with another x-expires."""
        self._next_at.pop(queue, None)

    def _keep_alive(self, queue: str) -> float:
        """Keeps a queue alive. Returns after how many s to do so again."""
        expire_ms = self._channel.expire_ms(queue)
        if not self._channel.is_durable(queue):
            return inf
        next_s = min(expire_ms / 1000 * KEEP_ALIVE_SHARE if expire_ms else inf, KEEP_ALIVE_S)
        try:
            self._channel.store.queues.keep_alive(queue, expire_ms)
        except (RedisError, OSError) as error:  # if Redis is gone, the consumer notices it at once
            logger.debug("queue %r is not kept alive: %s", queue, error)
            return float(min(RETRY_S, next_s))
        return float(next_s)
