"""What tests hand on to those after them in the same process."""

import redis

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
