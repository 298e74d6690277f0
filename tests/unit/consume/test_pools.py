"""Pools of connections, without a server."""

from socket import socket
from typing import Any

import pytest
import redis

from kombu_delayq.redis import connections


@pytest.mark.parametrize("error", [TypeError("argument must be an int, or have a fileno() method"), ValueError(-1)])
def test_a_connection_that_another_thread_closes_meanwhile_is_made_anew(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle connection that has no socket any more when it is asked is left to the pool, which connects it."""

    def fail(*_: Any) -> bool:
        raise error

    pool = redis.ConnectionPool()
    idle = pool.make_connection()
    idle._sock = socket()
    monkeypatch.setattr(idle, "can_read", fail)
    monkeypatch.setattr(pool, "get_connection", lambda *_: "made anew")
    pool._available_connections.append(idle)
    assert connections.take(pool) == "made anew"
    assert pool._available_connections == [idle]
