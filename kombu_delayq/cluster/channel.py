"""A channel of the transport for a cluster."""

from contextlib import suppress
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any, cast

from kombu.log import get_logger
from kombu.transport import redis as stock
from kombu.transport import virtual

from kombu_delayq.channel import DelayedChannel
from kombu_delayq.cluster.client import ClusterClient, ClusterPool, PrefixedClient
from kombu_delayq.cluster.pool import LATE_S
from kombu_delayq.cluster.pubsub import ClusterPubSub
from kombu_delayq.consume.qos import FetchedQoS
from kombu_delayq.redis import pools
from kombu_delayq.redis.errors import OF_REPLICA

logger = get_logger(__name__)

#: For how long a publisher does not ask again which queues are bound to an exchange, in s.
TABLE_S = 1.0


class ClusterQoS(FetchedQoS):
    """What a channel holds. Messages of fanouts are not noted in Redis, so that no node need answer to deliver one.

    kombu notes them, but what it puts back from there goes to a list that no consumer of a fanout reads.
    """

    def append(self, message: Any, delivery_tag: str) -> None:
        """Notes a message in hand."""
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledges a message."""
        if delivery_tag in self._held:
            super().ack(delivery_tag)
        else:
            virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Acknowledges a message, or puts it back; one of a fanout is dropped."""
        if delivery_tag in self._held:
            super().reject(delivery_tag, requeue=requeue)
        else:
            virtual.QoS.ack(self, delivery_tag)

    def restore_by_tag(self, tag: str, client: Any = None, leftmost: bool = False) -> None:
        """Drops a message of a fanout."""

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the transfer worker puts back what consumers hold that have gone."""


class ClusterChannel(DelayedChannel, stock.Channel):
    """A channel whose commands go to the nodes of their keys."""

    #: A node that says that the cluster is down may mean one slot alone.
    _refusals = OF_REPLICA
    keyprefix_fanout: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tables: dict[str, tuple[float, list[Any]]] = {}
        super().__init__(*args, **kwargs)
        if self.QoS is FetchedQoS:
            self.QoS = ClusterQoS

    def separate_pool(self) -> ClusterPool:
        """Returns a pool for a thread of its own, which serves queues of all nodes, and so waits for none for long."""
        pool = cast(ClusterPool, self.patient_pool(pools.TRANSFER_CONNECTIONS))
        pool.hurry(LATE_S)
        return pool

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Consumes a queue. From then on no command waits long for one node, so that other queues do not wait."""
        self.pool.hurry()
        self.async_pool.hurry()
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def get_table(self, exchange: str) -> list[Any]:
        """Returns the queues that are bound to an exchange, as they were at most a second ago."""
        until, table = self._tables.get(exchange, (0.0, []))
        if monotonic() >= until:
            table = super().get_table(exchange)
            self._tables[exchange] = monotonic() + TABLE_S, table
        return table

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        known = self._tables.get(exchange)
        if known is not None and not self.typeof(exchange).lookup(known[1], exchange, routing_key, default):
            del self._tables[exchange]  # such as for a reply to a process that has just begun to wait for it
        return super()._lookup(exchange, routing_key, default)

    def _queue_bind(self, exchange: str, *args: Any) -> None:
        super()._queue_bind(exchange, *args)
        self._tables.pop(exchange, None)

    def _delete(self, queue: str, exchange: str, *args: Any, **kwargs: Any) -> None:
        super()._delete(queue, exchange, *args, **kwargs)
        self._tables.pop(exchange, None)

    def _receive(self) -> bool:
        """Reads what has come of fanouts; as kombu's own, but the end of the connection is no error."""
        subscriptions: ClusterPubSub = self.subclient
        received = False
        while True:
            with suppress(Empty):
                received = bool(self._receive_one(subscriptions)) or received
            if not subscriptions.has_more():
                return received

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        params = super()._connparams(asynchronous=asynchronous)
        # A node that hangs must not keep a worker from the others; redis-py itself would wait for ever.
        for name in ("socket_timeout", "socket_connect_timeout"):
            if params.get(name) is None:
                params[name] = self.options.answer_s
        return params

    def _get_pool(self, asynchronous: bool = False) -> ClusterPool:
        params = self._connparams(asynchronous=asynchronous)
        self.keyprefix_fanout = self.keyprefix_fanout.format(db=params["db"])
        topology = self._transport().topology_for(self._connparams())
        return ClusterPool(topology, **params)

    def _get_client(self) -> Any:
        super()._get_client()  # checks the version of redis-py
        if self.global_keyprefix:
            return partial(PrefixedClient, global_keyprefix=self.global_keyprefix)
        return ClusterClient

    def _note_refusal(self) -> None:
        """Does nothing: one node that takes no writes ends no connection, and another one takes its place."""
