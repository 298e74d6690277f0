"""Leaves a primary that the Sentinels no longer name, although it still answers.

After a planned failover the old primary takes writes for about ten seconds more. Messages published there are lost when
it becomes a replica, and messages delivered there are delivered again by the new primary.
"""

import os
from threading import Lock
from time import monotonic
from typing import Any

from kombu.log import get_logger
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from kombu_delayq.redis.backoff import Backoff

logger = get_logger(__name__)

#: A process asks the Sentinels every ``ASK_S``. While none answers, the pause doubles up to ``LONGEST_PAUSE_S``. In s.
ASK_S, LONGEST_PAUSE_S = 1.0, 30.0
#: How long the process waits for the answer of a Sentinel, in s, and no second time: the asking thread has other work.
ANSWER_S = 0.5

Address = tuple[str, int]


class NamedPrimary:
    """The primary that the Sentinels name. Any thread may ask all the time.

    Args:
        manager: The Sentinels, and how they are reached.
        service: The name under which they know the primary.
    """

    def __init__(self, manager: Sentinel, service: str) -> None:
        timeouts = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S}
        nodes = [_address_of(node) for node in manager.sentinels]
        how = {**manager.sentinel_kwargs, **timeouts, "retry": Retry(NoBackoff(), 0)}
        self._sentinels = Sentinel(nodes, manager.min_other_sentinels, how)
        self._service = service
        self._address: Address | None = None
        self._asking = Lock()
        self._backoff = Backoff(2 * ASK_S, LONGEST_PAUSE_S)
        self._ask_at = monotonic() + ASK_S

    def address(self) -> Address | None:
        """Returns the primary's address, at most a second old; None while no Sentinel answers."""
        if monotonic() >= self._ask_at and self._asking.acquire(blocking=False):
            try:
                self._ask()
            finally:
                self._asking.release()
        return self._address

    def _ask(self) -> None:
        try:
            host, port = self._sentinels.discover_master(self._service)
        except (RedisError, OSError):
            self._address, pause_s = None, self._backoff.failed()
        else:
            self._address, pause_s = (host, port), ASK_S
            self._backoff.succeeded()
        self._ask_at = monotonic() + pause_s


class FollowingPool(SentinelConnectionPool):
    """Connections to the primary that the Sentinels name now. After a failover the pool leaves the old primary."""

    #: Whether to close connections in use as well. This is safe only if one thread uses them all.
    in_one_thread = False
    _asks: tuple[int, NamedPrimary] | None = None

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a connection to the current primary."""
        self.follow()
        return super().get_connection(*args, **kwargs)

    def follow(self) -> bool:
        """Leaves the primary if the Sentinels name another one. Returns whether it did."""
        before = self.master_address
        if before is None or self._named().address() in (None, before):
            return False
        try:
            now = self.get_master_address()  # drops the connections that are not in use
        except (RedisError, OSError):
            return False
        if now == before:
            return False
        logger.info("the Sentinels name %s:%s as the primary of %s now", *now, self.service_name)
        if self.in_one_thread:
            self.disconnect()
        return True

    def _named(self) -> NamedPrimary:
        pid = os.getpid()
        if self._asks is None or self._asks[0] != pid:
            nodes = frozenset(map(_address_of, self.sentinel_manager.sentinels))
            made = NamedPrimary(self.sentinel_manager, self.service_name)
            self._asks = pid, _named.setdefault((pid, nodes, self.service_name), made)
        return self._asks[1]


#: By process, Sentinels and service: one connection to a Sentinel serves all connections of a process.
_named: dict[tuple[int, frozenset[Address], str], NamedPrimary] = {}


def _address_of(node: Any) -> Address:
    given = node.connection_pool.connection_kwargs
    return given["host"], given["port"]
