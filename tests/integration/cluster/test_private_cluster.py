"""The cluster that tests start themselves."""

import socket
from contextlib import ExitStack

import pytest
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


def test_a_slot_moves_to_a_node_that_has_stale_keys_of_it() -> None:
    """A replica that becomes a primary may have keys of a slot that its primary gave away just before."""
    with PrivateCluster(primaries=3, replicas=0) as cluster:
        slot = key_slot(b"q")
        old, new, _ = sorted(cluster.primaries(), key=lambda node: slot not in cluster.slots_of(node))
        old.client.set("q", "now")
        new.set_slot(slot, "IMPORTING", old.id)
        for key, value in (("q", "stale"), ("{q}gone", "stale")):
            with new.client.pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING").execute_command("SET", key, value).execute()
        new.client.execute_command("CLUSTER SETSLOT", slot, "STABLE")
        assert cluster.move_slot(slot, new) == 1
        assert (new.client.get("q"), new.client.get("{q}gone")) == ("now", None)
