"""``connections.take`` and ``give_back``, next to what a pool of redis-py does by itself."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis.credentials import UsernamePasswordCredentialProvider

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.redis import OF_USE, connections


@pytest.fixture
def pool(redis_server: PrivateRedis) -> Iterator[redis.ConnectionPool]:
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=2)
    yield pool
    pool.disconnect()


def ask(connection: Any, *command: str) -> Any:
    connection.send_command(*command)
    return connection.read_response()


def test_an_idle_connection_is_used_again(pool: redis.ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call after the other goes over one connection; two at once have two, and no more than the limit."""
    first = connections.take(pool)
    assert ask(first, "PING") == b"PONG"
    connections.give_back(pool, first)
    assert connections.take(pool) is first
    second = connections.take(pool)
    assert second is not first
    monkeypatch.setattr(connections, "FREE_S", 0.1)
    with pytest.raises(redis.ConnectionError, match="Too many connections"):
        connections.take(pool)
    for connection in (first, second):
        connections.give_back(pool, connection)
    assert pool.get_connection(*OF_USE) is second


@pytest.mark.parametrize("lost", ["killed", "closed"])
def test_a_connection_that_is_unfit_is_made_anew(
    pool: redis.ConnectionPool, redis_server: PrivateRedis, lost: str
) -> None:
    """A connection that Redis or the pool has closed is connected anew."""
    connection = connections.take(pool)
    connections.give_back(pool, connection)
    if lost == "killed":
        redis_server.client().client_kill_filter(_type="normal", skipme=True)
    else:
        pool.disconnect()
    again = connections.take(pool)
    assert again is connection
    assert ask(again, "PING") == b"PONG"


def test_a_fork_has_connections_of_its_own(pool: redis.ConnectionPool) -> None:
    """A child does not speak over the connection of its parent."""
    connection = connections.take(pool)
    own = ask(connection, "CLIENT", "ID")
    connections.give_back(pool, connection)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writes, str(ask(connections.take(pool), "CLIENT", "ID")).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reads, 100)) != own
    assert ask(connections.take(pool), "CLIENT", "ID") == own


def test_threads_share_a_pool(redis_server: PrivateRedis) -> None:
    """No two calls have one connection at the same time, and none is lost."""
    pool = redis.ConnectionPool(port=redis_server.port, max_connections=4)

    def call(number: int) -> bool:
        connection = connections.take(pool)
        try:
            return bool(ask(connection, "ECHO", str(number)) == str(number).encode())
        finally:
            connections.give_back(pool, connection)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(2000)))
    assert len({connections.take(pool) for _ in range(4)}) == 4
    pool.disconnect()


def test_a_pool_that_logs_in_anew_does_so(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a credential provider may renew its tokens, connections go back in the pool's own way."""
    pool = redis.ConnectionPool(
        port=redis_server.port, credential_provider=UsernamePasswordCredentialProvider("default", "")
    )
    released: list[Any] = []
    release = pool.release
    monkeypatch.setattr(pool, "release", lambda connection: (released.append(connection), release(connection))[1])
    monkeypatch.setattr(pool, "get_connection", lambda *of_use: "taken")
    assert connections.take(pool) == "taken"
    connection: Any = pool.make_connection()
    pool._in_use_connections.add(connection)
    connections.give_back(pool, connection)
    assert released == [connection]
