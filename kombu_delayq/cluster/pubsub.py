"""Subscriptions at one node of a cluster, which go to another node when theirs has gone."""

from time import monotonic
from typing import Any

from kombu.log import get_logger
from kombu.transport.redis import PrefixedRedisPubSub
from kombu.utils.eventio import READ, poll
from redis.client import PubSub
from redis.connection import Connection

from kombu_delayq.cluster.pool import LOST, NodePools, node_of
from kombu_delayq.redis import OF_USE
from kombu_delayq.text import as_text

logger = get_logger(__name__)

#: How often a node is asked whether it is there, and how long it may take to answer, in s. Nothing else notices a node
#: that hangs: who only listens sends nothing.
BEAT_S, SILENT_S = 2.0, 2.0
#: Whether a connection forgets one of those that it tells when it has connected; before redis-py 5 it forgets all.
_FORGETS_ONE = hasattr(Connection, "deregister_connect_callback")


class ClusterPubSub(PubSub):
    """redis-py's subscriptions. The nodes of a cluster pass on to each other what is published.

    After a lost connection, or when the node leaves the cluster, it subscribes again at a node that answers. Then the
    first messages tell of the subscriptions, so that the reader knows that it may have missed something.
    """

    connection_pool: NodePools
    _asked_at = 0.0

    def execute_command(self, *args: Any) -> None:
        """Sends a command such as SUBSCRIBE."""
        if self.connection is None:
            self._join()
        try:
            super().execute_command(*args)
        except LOST as error:
            self._move(error)
            super().execute_command(*args)

    def parse_response(self, *args: Any, **kwargs: Any) -> Any:
        """Reads a message; None also after it has moved to another node."""
        if self.connection is None and (self.channels or self.patterns):
            self._join()
        elif self.has_gone():
            self._move("it has left the cluster, or does not answer")
        try:
            return super().parse_response(*args, **kwargs)
        except LOST as error:
            self._move(error)
            return None

    def has_gone(self) -> bool:
        """Whether the node of the subscriptions has left the cluster, or does not answer. Asks it now and then."""
        connection: Any = self.connection
        if connection is None or connection._sock is None:
            return False
        if not self.connection_pool.topology.is_live(node_of(connection)):
            return True
        silent_s = monotonic() - self._asked_at
        if self.health_check_response_counter and silent_s > SILENT_S and not _is_readable(connection):
            return True
        if not self.health_check_response_counter and self.subscribed and silent_s > BEAT_S:
            try:
                connection.send_command("PING", self.HEALTH_CHECK_MESSAGE, check_health=False)
            except LOST:
                return True
            self._asked_at = monotonic()
            self.health_check_response_counter = 1
        return False

    def has_more(self) -> bool:
        """Whether another message has come."""
        connection: Any = self.connection
        try:
            return connection is not None and bool(connection.can_read(timeout=0))
        except LOST:
            self.leave()
            return False

    def leave(self) -> None:
        """Closes the connection. The subscriptions are made again with the next command or read."""
        connection: Any = self.connection
        if connection is not None:
            self.connection_pool.topology.suspect(node_of(connection))
            if _FORGETS_ONE:
                connection.deregister_connect_callback(self.on_connect)
            else:
                connection.clear_connect_callbacks()  # it has no other
            connection.disconnect()
            self.connection = None
            self.connection_pool.release(connection)
            self.health_check_response_counter = 0

    def _move(self, reason: object) -> None:
        if self.connection is not None:
            logger.info("subscriptions leave the node %s: %s", node_of(self.connection), reason)
        self.leave()
        self._join()

    def _join(self) -> None:
        connection = self.connection_pool.get_connection(*OF_USE)
        connection.register_connect_callback(self.on_connect)
        self.connection = connection
        self.on_connect(connection)


def _is_readable(connection: Any) -> bool:
    poller = poll()
    try:
        poller.register(connection._sock.fileno(), READ)
        return bool(poller.poll(0))
    finally:
        poller.close()


class PrefixedPubSub(PrefixedRedisPubSub, ClusterPubSub):
    """Subscriptions with kombu's ``global_keyprefix``."""

    def _prefix_args(self, args: Any) -> Any:
        # From redis-py 8 on, a new connection subscribes to names that are bytes, which kombu would write as b'…'.
        command, *names = args
        return super()._prefix_args([command, *(as_text(name) for name in names)])
