"""What tests hand on to those after them in the same process, and how their servers start."""

import socket

import pytest
import redis

from celery_ext.demo import private_redis
from celery_ext.demo.private_redis import BUS_ABOVE, PrivateRedis, find_server, free_port, version_of
from tests.support.conditions import until
from tests.support.workers.harness import MakeProj


def _connections(client: redis.Redis) -> set[str]:
    """Returns the ids of connections to the broker; results have a database of their own."""
    return {connection["id"] for connection in client.client_list() if connection["db"] == "0"}


def test_an_app_takes_its_connections_with_it(make_proj: MakeProj, client: redis.Redis) -> None:
    """The next app with its settings starts with connections of its own, not with those that a test may have cut."""
    proj = make_proj()
    before = _connections(client)
    proj.send("record", "x")
    proj.app.control.ping(timeout=0.1)
    own = _connections(client) - before
    assert own
    proj.close()
    until(lambda: not own & _connections(client))
    later = make_proj()
    later.send("record", "x")
    later.app.control.ping(timeout=0.1)
    assert not own & _connections(client)


def test_a_server_takes_another_port_for_its_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A private Redis with hash slots starts although another process has the port that was chosen for its bus."""
    server = PrivateRedis(slots=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bus = taken.getsockname()[1]
        ports = iter([bus, free_port()])
        has_option = version_of(find_server()) >= 7
        if has_option:
            monkeypatch.setattr(private_redis, "free_port", lambda: next(ports))
        else:
            server.port = bus - BUS_ABOVE
        with server:
            assert server.client().ping()
    assert not (has_option and [*ports])
