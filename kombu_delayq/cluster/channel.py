"""A channel of the transport for a cluster."""

from contextlib import suppress
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any, cast

from kombu.log import get_logger
from kombu.transport import redis as stock
from kombu.transport import virtual
from kombu.transport.virtual.base import queue_declare_ok_t
from redis.exceptions import RedisError

from kombu_delayq.channel import DelayedChannel
from kombu_delayq.cluster.client import ClusterClient, ClusterPool, PrefixedClient
from kombu_delayq.cluster.pool import LATE_S
from kombu_delayq.cluster.pubsub import ClusterPubSub
from kombu_delayq.consume import FetchedQoS
from kombu_delayq.redis import OF_REPLICA, TRANSFER_CONNECTIONS, is_full, noticing_demotion
from kombu_delayq.text import readable

logger = get_logger(__name__)

#: For how long a publisher does not ask again which queues are bound to an exchange, in s.
TABLE_S = 1.0
#: How often to try to note bindings that could not be noted, in s.
BIND_S = 1.0
#: Brokers, by URL, that could not note a binding when one was last tried.
_not_binding: set[str] = set()


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
    """A channel whose commands go to the nodes of their keys.

    kombu's bindings have a node, too. Fanouts do without them, and so does Celery, which publishes to the queue of a
    direct exchange by its name. So while their node is away or full, bindings of both are noted later.
    """

    keyprefix_fanout: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tables: dict[str, tuple[float, list[Any]]] = {}
        self._unbound: dict[tuple[Any, ...], None] = {}  # exchange, routing key, pattern and queue still to be noted
        self._bind_at = 0.0
        self._binder: Any = None
        super().__init__(*args, **kwargs)
        if self.QoS is FetchedQoS:
            self.QoS = ClusterQoS

    def separate_pool(self) -> ClusterPool:
        """Returns a pool for a thread of its own, which serves queues of all nodes, and so waits for none for long."""
        pool = cast(ClusterPool, self.patient_pool(TRANSFER_CONNECTIONS))
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
        channels = list(self._transport().channels)
        return table + [bound for channel in channels for name, *bound in list(channel._unbound) if name == exchange]

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        known = self._tables.get(exchange)
        if known is not None and not self.typeof(exchange).lookup(known[1], exchange, routing_key, default):
            del self._tables[exchange]  # such as for a reply to a process that has just begun to wait for it
        return super()._lookup(exchange, routing_key, default)

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        """Declares a queue. One of remote control or events may be on a node that is away, and yet a worker starts."""
        try:
            return super().queue_declare(queue, passive=passive, **kwargs)
        except (RedisError, OSError) as error:
            if passive or not (queue and kwargs.get("auto_delete") and self.store.pool.is_partial(error)):
                raise
            return queue_declare_ok_t(queue, 0, 0)

    def stay_in_use(self) -> None:
        """Keeps the queues consumed here from expiring, and notes bindings that could not be noted."""
        super().stay_in_use()
        self._bind_rest()

    def maybe_refresh_binding_expiry(self) -> None:
        """Keeps bindings from expiring, unless some cannot be noted now: noting them does as much."""
        if not self._unbound:
            super().maybe_refresh_binding_expiry()

    def conn_or_acquire(self, client: Any = None) -> Any:
        """Returns a context with a client for kombu's commands; for bindings, one that waits for no node for long."""
        return super().conn_or_acquire(client or self._binder)

    def _put(self, queue: str, message: Any, **kwargs: Any) -> Any:
        self._bind_rest()
        return super()._put(queue, message, **kwargs)

    def _queue_bind(self, exchange: str, *binding: Any) -> None:
        if self.typeof(exchange).type == "topic":  # nothing reaches the queue without the binding
            super()._queue_bind(exchange, *binding)
            self._tables.pop(exchange, None)
        else:
            self._unbound[exchange, *binding] = None
            self._note_bindings()

    def _bind_rest(self) -> None:
        if self._unbound and monotonic() >= self._bind_at:
            self._note_bindings()

    def _note_bindings(self) -> None:
        """Notes bindings. It does not wait for a node that is away, nor for a full one: they are noted later."""
        self._bind_at = monotonic() + BIND_S
        self._binder = self._get_client()(connection_pool=self.pool.aside())
        # A caller of a transaction waits for its node as long as for any reply.
        self._binder.pipeline = partial(self._binder.pipeline, transaction=False)
        try:
            for binding in list(self._unbound):
                self._note_binding(binding)
        except (RedisError, OSError) as error:
            if not self._is_passing(error):
                raise
            if self._broker not in _not_binding:
                _not_binding.add(self._broker)
                logger.warning("queues are used, but their bindings are noted later: %s", readable(error))
        else:
            if self._broker in _not_binding:
                _not_binding.discard(self._broker)
                logger.info("bindings of queues are noted again")
        finally:
            self._binder = None

    def _note_binding(self, binding: tuple[Any, ...]) -> None:
        try:
            super()._queue_bind(*binding)
        except (RedisError, OSError) as error:
            if not self._is_passing(error):
                self._unbound.pop(binding, None)
            raise
        self._unbound.pop(binding, None)
        self._tables.pop(binding[0], None)

    def _is_passing(self, error: Exception) -> bool:
        return self.store.pool.is_partial(error) or is_full(error)

    def _delete(self, queue: str, exchange: str, *args: Any, **kwargs: Any) -> None:
        self._unbound.pop((exchange, *args), None)
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
            if getattr(self, name) is None:
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

    def _noticing(self, connection_class: type[Any]) -> type[Any]:
        # A node that says that the cluster is down may mean one slot alone. One that takes no writes ends no connection
        # of the others, and another one takes its place.
        return noticing_demotion(connection_class, lambda: None, OF_REPLICA)
