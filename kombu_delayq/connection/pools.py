"""Pools of connections of our own; behind Sentinel, also those to the Sentinels."""

import redis
from redis.sentinel import SentinelConnectionPool

#: Connections that a transfer worker needs: one for commands, and one for announcements.
TRANSFER_CONNECTIONS = 2
#: redis-py before 5.3 asks for the command for which a connection is used.
OF_USE = () if redis.VERSION >= (5, 3) else ("EVALSHA",)


def with_sentinels(pool: redis.ConnectionPool) -> list[redis.ConnectionPool]:
    """Returns a pool, and behind Sentinel one more pool for each Sentinel that it asks for the primary."""
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [pool, *(sentinel.connection_pool for sentinel in sentinels)]


def wait_at_most(pool: redis.ConnectionPool, timeout_s: float) -> None:
    """Gives the connections of a pool a timeout for answers, unless they have one already."""
    for reached in with_sentinels(pool):
        if reached.connection_kwargs.get("socket_timeout") is None:
            reached.connection_kwargs["socket_timeout"] = timeout_s


def make_room(pool: redis.ConnectionPool, connections: int = TRANSFER_CONNECTIONS) -> None:
    """Raises the limit of a pool to so many connections; by default to those of a transfer worker.

    The option ``max_connections`` is meant for kombu's pools. A pool of kombu needs only one connection.
    """
    pool.max_connections = max(pool.max_connections, connections)


def close(pool: redis.ConnectionPool) -> None:
    """Closes all connections of a pool. The pool makes new ones when it is used again."""
    for reached in with_sentinels(pool):
        reached.disconnect()


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


def look_again(pool: redis.ConnectionPool) -> None:
    """Asks a cluster anew which node has which keys, such as after an error of one; does nothing without a cluster."""
    refresh = getattr(pool, "refresh", None)
    if refresh is not None:
        refresh()
