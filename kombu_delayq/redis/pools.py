"""Pools of connections of our own; behind Sentinel, also those to the Sentinels."""

import os
from math import inf
from typing import Any
from weakref import WeakSet

import redis
from redis.sentinel import SentinelConnectionPool

#: Connections that a transfer worker needs: one for commands, and one for announcements.
TRANSFER_CONNECTIONS = 2
#: redis-py before 5.3 asks for the command for which a connection is used.
OF_USE = () if redis.VERSION >= (5, 3) else ("EVALSHA",)

#: The connections of this process that a forked child does not inherit.
_own: WeakSet[Any] = WeakSet()


def keep_from_children(connection: Any) -> None:
    """Lets processes that are forked from now on close a connection, without a word to Redis.

    Otherwise a connection does not end with its process, but with the last child. Until then a wait of the dead process
    would take messages, and its subscriptions would say that it lives.
    """
    _own.add(connection)


def _close_inherited() -> None:
    """In a child that was forked: the open sockets are those of its parent, which may go on with them.

    Not by the connection's own ``disconnect``: kombu's takes the socket out of the poller, which is the parent's, too.
    """
    for connection in list(_own):
        inherited, connection._sock = connection._sock, None
        connection._parser.on_disconnect()
        if inherited is not None:
            inherited.close()


os.register_at_fork(after_in_child=_close_inherited)


def with_sentinels(pool: redis.ConnectionPool) -> list[redis.ConnectionPool]:
    """Returns a pool, and behind Sentinel one more pool for each Sentinel that it asks for the primary."""
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [pool, *(sentinel.connection_pool for sentinel in sentinels)]


def wait_at_most(pool: redis.ConnectionPool, answer_s: float) -> None:
    """Lets connections of a pool wait for answers for so long, in s. Those that are not in use are made anew."""
    for reached in with_sentinels(pool):
        most_s = min(reached.connection_kwargs.get("socket_timeout") or inf, answer_s)
        reached.connection_kwargs["socket_timeout"] = most_s
        reached.disconnect(inuse_connections=False)
        for connection in list(getattr(reached, "_available_connections", ())):
            connection.socket_timeout = most_s


def make_room(pool: redis.ConnectionPool, connections: int) -> None:
    """Raises the limit of a pool to so many connections.

    The option ``max_connections`` is meant for kombu's pools. A pool of kombu needs only one connection.
    """
    pool.max_connections = max(pool.max_connections, connections)


def close(pool: redis.ConnectionPool) -> None:
    """Closes all connections of a pool. The pool makes new ones when it is used again."""
    for reached in with_sentinels(pool):
        reached.disconnect()


def take(pool: redis.ConnectionPool) -> Any:
    """Takes a connection out of a pool, as its ``get_connection`` does, in less time where an idle one is fit for use.

    The pool's own metrics do not see it. ``give_back`` returns it.
    """
    if _is_plain(pool) and pool.pid == os.getpid():
        with pool._lock:
            connection = pool._available_connections.pop() if pool._available_connections else None
            if connection is not None:
                pool._in_use_connections.add(connection)
        if connection is not None:
            if _is_fit(connection):
                return connection
            give_back(pool, connection)  # the pool itself connects it anew
    return pool.get_connection(*OF_USE)


def give_back(pool: redis.ConnectionPool, connection: Any) -> None:
    """Returns a connection that ``take`` has taken out of a pool."""
    if _is_plain(pool) and connection.pid == pool.pid == os.getpid() and not _is_to_reconnect(connection):
        with pool._lock:
            if connection in pool._in_use_connections:
                pool._in_use_connections.remove(connection)
                pool._available_connections.append(connection)
                return
    pool.release(connection)


def _is_plain(pool: redis.ConnectionPool) -> bool:
    """Whether a pool is redis-py's own kind, and does nothing with a connection that comes back.

    Where a credential provider renews its tokens, the pool logs in anew then.
    """
    return type(pool) is redis.ConnectionPool and pool.connection_kwargs.get("credential_provider") is None


def _is_fit(connection: Any) -> bool:
    """Whether a connection is open, and nothing has come over it since it was last used."""
    try:
        return connection._sock is not None and not connection.can_read()
    # The others: another thread closes the connection in between, and it has no socket any more.
    except (OSError, redis.RedisError, AttributeError, TypeError, ValueError):
        return False


def _is_to_reconnect(connection: Any) -> bool:
    """Whether Redis has announced, over this connection, that it moves. Older redis-py does not hear that."""
    ask = getattr(connection, "should_reconnect", None)
    return ask is not None and bool(ask())


def client_of(pool: redis.ConnectionPool) -> redis.Redis:
    """Returns a client over a pool: of a cluster, one that sends each command to the node of its keys."""
    make = getattr(pool, "client", None)
    client: redis.Redis = redis.Redis(connection_pool=pool) if make is None else make()
    return client


def has_nodes(pool: redis.ConnectionPool) -> bool:
    """Whether a pool is for the nodes of a cluster."""
    return hasattr(pool, "for_key")


def node_of(pool: redis.ConnectionPool, key: str) -> redis.ConnectionPool:
    """Returns the pool of the node of a cluster that has a key; any other pool as it is.

    Raises:
        redis.exceptions.ConnectionError: No node of the cluster is known to have the key.
    """
    for_key = getattr(pool, "for_key", None)
    found: redis.ConnectionPool = pool if for_key is None else for_key(key)
    return found


def client_at(pool: redis.ConnectionPool, key: str) -> redis.Redis:
    """Returns a client of the node of a cluster that has a key; of any other pool, of its server.

    Raises:
        redis.exceptions.ConnectionError: As of ``node_of``.
    """
    return redis.Redis(connection_pool=node_of(pool, key))


def aside(pool: redis.ConnectionPool) -> redis.ConnectionPool:
    """Returns a pool over the same connections that waits for no node of a cluster for long; any other as it is."""
    make = getattr(pool, "aside", None)
    found: redis.ConnectionPool = pool if make is None else make()
    return found


def connected_at(pool: redis.ConnectionPool, key: str) -> float:
    """Returns when the latest connection of a pool was made, in s of ``monotonic``; in a cluster to a key's node."""
    node = node_of(pool, key)
    open_now = [*getattr(node, "_available_connections", ()), *getattr(node, "_in_use_connections", ())]
    return max((getattr(connection, "connected_at", inf) for connection in open_now), default=inf)


def look_again(pool: redis.ConnectionPool) -> None:
    """Asks a cluster anew which node has which keys, such as after an error of one; does nothing without a cluster."""
    refresh = getattr(pool, "refresh", None)
    if refresh is not None:
        refresh()
