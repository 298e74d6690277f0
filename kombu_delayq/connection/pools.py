"""Pools of connections that are nobody's but ours: behind Sentinel, with those to the Sentinels."""

import redis
from redis.sentinel import SentinelConnectionPool

#: Connections that a transfer worker needs: one for commands, and one that hears announcements.
TRANSFER_CONNECTIONS = 2
#: What redis-py before 5.3 wants to know of a connection's use.
OF_USE = () if redis.VERSION >= (5, 3) else ("EVALSHA",)


def with_sentinels(pool: redis.ConnectionPool) -> list[redis.ConnectionPool]:
    """Returns a pool, and those by which it asks Sentinels for the primary, one a Sentinel."""
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    return [pool, *(sentinel.connection_pool for sentinel in sentinels)]


def wait_at_most(pool: redis.ConnectionPool, timeout_s: float) -> None:
    """Lets the connections of a pool wait no longer for an answer, unless they have a timeout already."""
    for each in with_sentinels(pool):
        if each.connection_kwargs.get("socket_timeout") is None:
            each.connection_kwargs["socket_timeout"] = timeout_s


def make_room(pool: redis.ConnectionPool) -> None:
    """Lets a pool have the connections of a transfer worker.

    The option ``max_connections`` bounds kombu's pools, to each of which one connection is enough.
    """
    pool.max_connections = max(pool.max_connections, TRANSFER_CONNECTIONS)


def close(pool: redis.ConnectionPool) -> None:
    """Closes all connections of a pool; it makes new ones when it is used again."""
    for each in with_sentinels(pool):
        each.disconnect()
