"""Pools of connections to the nodes of a cluster, which look like one pool."""

import copy
from collections.abc import Callable, Mapping, Sequence
from math import inf
from threading import Lock
from time import monotonic
from typing import Any, Self
from weakref import WeakValueDictionary

import redis
from redis import cluster
from redis.connection import Connection, SSLConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from kombu_delayq.cluster.slots import slot_of_key
from kombu_delayq.cluster.topology import ASK_S, NodeAddress, Topology
from kombu_delayq.redis import OF_USE, passes

#: How long a command waits for a node that can run it, in s: by default, and where other queues have to be served
#: meanwhile. The caller may try again.
RETRY_S, SHORT_RETRY_S = 5.0, 1.0
#: Errors of a connection that is lost, or of a node that does not answer.
LOST: tuple[type[Exception], ...] = (RedisConnectionError, redis.TimeoutError, OSError)
#: How late a reply is when the cluster is asked whether its node is still the one that has the slot, in s. Who has much
#: else to do, such as a transfer worker, waits no longer.
LATE_S = 0.5
#: In earlier versions of redis-py only this parser knows MOVED and its like as errors of their own.
_ClusterParser: Any = getattr(cluster, "ClusterParser", None)
#: The topologies in use, by seeds and parameters of connections.
_shared: WeakValueDictionary[str, Topology] = WeakValueDictionary()


class NodePools(redis.ConnectionPool):
    """A pool for each node of a cluster, all with the same parameters.

    What is asked of the pool itself is for commands without a key: it gives connections to some node that answers.

    Args:
        topology: The nodes, which several pools may share.
        connection_class: Class of the connections.
        max_connections: The most connections to each node.
        **params: Parameters of the connections; host and port say where the pool looks for the cluster.

    Attributes:
        retry_s: How long a command waits for a node that can run it.
        serves_others: Whether a caller that waits for a node keeps other nodes waiting. Then the time counts in which
            a node has been away already, and a reply may not take longer than ``retry_s``, either.
    """

    several = True
    partial_errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
    retry_s = RETRY_S
    serves_others = False

    def __init__(
        self,
        topology: Topology,
        *,
        connection_class: type[Any] = Connection,
        max_connections: int | None = None,
        **params: Any,
    ) -> None:
        self.topology = topology
        self._pools: dict[NodeAddress, redis.ConnectionPool] = {}
        self._making = Lock()
        self._home: NodeAddress | None = None
        self._params = dict(params)  # redis-py adds to those of a pool what belongs to that pool alone
        self._version = -1
        super().__init__(connection_class=connection_class, max_connections=max_connections, **params)

    @property
    def max_connections(self) -> int:
        """The most connections to each node."""
        return self._max_connections

    @max_connections.setter
    def max_connections(self, most: int) -> None:
        self._max_connections = most
        for pool in list(self._pools.values()):
            pool.max_connections = max(pool.max_connections, most)

    def is_partial(self, error: object) -> bool:
        """Whether an error says only that a node is away, or has not the slot, at the moment, while others may answer.

        Any other error would be that of every node.
        """
        if isinstance(error, ResponseError) and not isinstance(error, OSError):
            # MOVED is an AskError.
            return passes(error) or isinstance(error, (AskError, TryAgainError, ClusterDownError, ReadOnlyError))
        return isinstance(error, self.partial_errors) and not isinstance(
            error, (AuthenticationError, AuthorizationError)
        )

    def hurry(self, retry_s: float = SHORT_RETRY_S) -> None:
        """Lets no command wait for long, because queues of other nodes are served as well."""
        self.retry_s, self.serves_others = retry_s, True
        connect_s = self._params.get("socket_connect_timeout")
        self._params["socket_connect_timeout"] = ASK_S if connect_s is None else min(connect_s, ASK_S)

    def aside(self) -> Self:
        """Returns the same pools of nodes, for commands that wait for no node for long."""
        found = copy.copy(self)
        found.retry_s, found.serves_others = LATE_S, True
        return found

    def of(self, node: NodeAddress) -> redis.ConnectionPool:
        """Returns the pool of a node. It stays the same one."""
        pool = self._pools.get(node)
        if pool is None:
            self._checkpid()
            with self._making:
                pool = self._pools.get(node)
                if pool is None:
                    pool = self._pools[node] = self._new_pool(node)
        return pool

    def node_of(self, key: str | bytes) -> redis.ConnectionPool:
        """Returns the pool of the primary that has a key now.

        Raises:
            NoNode: None is known, or it does not answer.
        """
        return self.for_slot(slot_of_key(key))

    def for_slot(self, slot: int) -> redis.ConnectionPool:
        """Returns the pool of the primary that has a slot now. The rest is as with ``node_of``."""
        node = self.topology.node_of(slot)
        if not self.topology.may_answer(node):
            raise self.topology.silence(node)
        if self._version != self.topology.version:
            self._tidy()
        return self.of(node)

    def refresh(self) -> bool:
        """Asks the cluster for its nodes again, unless that was just done. Returns whether anything changed."""
        return self.topology.refresh()

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a connection to some primary, the same one as long as it answers."""
        lost: Exception = self.topology.silence()
        order = self.topology.any_order()
        if self._home in order:
            order.sort(key=lambda node: node != self._home)
        for node in order:
            if not self.topology.may_answer(node):
                continue
            try:
                connection = self.of(node).get_connection(*OF_USE)
            except LOST as error:
                self.topology.suspect(node, error)
                lost = error
            else:
                self.topology.trust(node)
                self._home = node
                return connection
        self.topology.refresh(wait=False)
        raise lost

    def await_reply(self, connection: Any, slot: int | None) -> None:
        """Waits for a reply as long as its node may bring it: a replica takes the place of a node that hangs.

        Args:
            connection: The connection over which a command was sent.
            slot: The hash slot of the command's keys; None without a key: any other node can run the next one.

        Raises:
            redis.exceptions.TimeoutError: The reply is late, and another node has the slot now, or other nodes wait.
        """
        node, most_s = node_of(connection), connection.socket_timeout or inf
        if self.serves_others or slot is None:
            most_s = min(most_s, self.retry_s, SHORT_RETRY_S)
        until = monotonic() + most_s
        while not connection.can_read(min(LATE_S, most_s)):
            self.topology.suspect(node, late_s=min(LATE_S, most_s))
            if monotonic() >= until:
                raise redis.TimeoutError(f"{node} has not answered within {most_s:g} s")
            self.topology.refresh()
            if slot is not None and self.topology.owner_of(slot) not in (node, None):
                raise redis.TimeoutError(f"{node} does not answer, and another node has its hash slots now")

    def release(self, connection: Any) -> None:
        """Gives a connection back to the pool of its node."""
        self.of(node_of(connection)).release(connection)

    def disconnect(self, inuse_connections: bool = True) -> None:
        """Closes all connections, to all nodes."""
        for pool in list(self._pools.values()):
            pool.disconnect(inuse_connections)

    def reset(self) -> None:
        """Begins anew, such as after a fork."""
        self._making = Lock()
        super().reset()

    def _new_pool(self, node: NodeAddress) -> redis.ConnectionPool:
        timeout_s = self.connection_kwargs.get("socket_timeout")
        given = {**self._params, "socket_timeout": timeout_s, "host": node.host, "port": node.port}
        given["redis_connect_func"] = _greet
        return redis.ConnectionPool(
            connection_class=self.connection_class, max_connections=self.max_connections, **given
        )

    def _tidy(self) -> None:
        """Closes what is not in use of the connections to nodes that have gone."""
        self._version = self.topology.version
        nodes = {*self.topology.primaries, *self.topology.replicas}
        for node, pool in list(self._pools.items()):
            if node not in nodes:
                pool.disconnect(inuse_connections=False)


def _greet(connection: Any) -> None:
    """Begins a connection. A node that hangs takes connections and greets nobody, so this waits for a shorter time."""
    if _ClusterParser is not None:
        connection.set_parser(_ClusterParser)
    connection._sock.settimeout(min(ASK_S, connection.socket_timeout or ASK_S))
    connection.on_connect()
    connection._sock.settimeout(connection.socket_timeout)


def node_of(connection: Any) -> NodeAddress:
    """Returns the node to which a connection leads."""
    return NodeAddress(connection.host, connection.port)


def shared_topology(seeds: Sequence[NodeAddress], params: Mapping[str, Any]) -> Topology:
    """Returns the nodes and slots of a cluster as this process knows them: what one connection learns, all know.

    Args:
        seeds: The nodes that the broker URL names.
        params: Parameters of connections to the nodes.
    """
    # Not the class of the channel, which would live as long as what is shared.
    plain = SSLConnection if issubclass(params["connection_class"], SSLConnection) else Connection
    known_by = repr(
        (
            sorted(seeds),
            plain,
            sorted((name, repr(value)) for name, value in params.items() if name != "connection_class"),
        )
    )
    return _shared.setdefault(known_by, Topology(seeds, slots_asker(plain, params)))


def slots_asker(connection_class: type[Any], params: Mapping[str, Any]) -> Callable[[NodeAddress, float], list[Any]]:
    """Returns what asks a node for its ``CLUSTER SLOTS``, over a connection of its own, with a timeout in s."""
    given = {name: value for name, value in params.items() if name not in ("connection_class", "max_connections")}

    def ask(node: NodeAddress, timeout_s: float) -> list[Any]:
        made = {
            **given,
            "host": node.host,
            "port": node.port,
            "socket_timeout": min(timeout_s, given.get("socket_timeout") or timeout_s),
            "socket_connect_timeout": min(timeout_s, given.get("socket_connect_timeout") or timeout_s),
        }
        connection = connection_class(**made)
        try:
            connection.connect()
            connection.send_command("CLUSTER", "SLOTS")
            found: Sequence[Any] = connection.read_response()
        finally:
            connection.disconnect()
        return list(found)

    return ask
