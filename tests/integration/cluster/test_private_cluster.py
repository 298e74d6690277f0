"""The cluster that tests start themselves."""

import socket
from contextlib import ExitStack

import pytest
import redis
from redis.crc import key_slot

from tests.support.servers import cluster_node
from tests.support.servers.cluster import PrivateCluster


def test_a_node_whose_ports_somebody_takes_starts_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may take a port, or that of the bus, after it was found free and before the node listens."""
    find, offsets = cluster_node.free_port, [0, 10_000]
    with ExitStack() as taken:

        def find_and_lose() -> int:
            port = find()
            if offsets:
                taken.enter_context(socket.create_server(("127.0.0.1", port + offsets.pop())))
            return port

        monkeypatch.setattr(cluster_node, "free_port", find_and_lose)
        with PrivateCluster(primaries=3, replicas=0) as cluster:
            assert len(cluster.primaries()) == 3
    assert not offsets


def test_counters_on_both_nodes_do_not_end_the_move_of_a_slot() -> None:
    """They are no keys that scripts name, so both nodes may make them; any other key on both is an error."""
    with PrivateCluster(primaries=3, replicas=0) as cluster:
        slot = key_slot(b"q")
        old, new, _ = sorted(cluster.primaries(), key=lambda node: slot not in cluster.slots_of(node))
        old.client.mset({"delayq:{q}:counts:1": "old", "{q}": "old"})

        def make_on_new(key: str) -> None:
            new.set_slot(slot, "IMPORTING", old.id)
            with new.client.pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING").execute_command("SET", key, "new").execute()

        make_on_new("delayq:{q}:counts:1")
        cluster.move_slot(slot, new)
        assert new.client.mget("delayq:{q}:counts:1", "{q}") == ["new", "old"]
        old, new = new, old
        make_on_new("{q}")
        with pytest.raises(redis.ResponseError, match="BUSYKEY"):
            cluster.move_slot(slot, new, page=1)
