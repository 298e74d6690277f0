"""The cluster that tests start themselves."""

import socket
from contextlib import ExitStack

import pytest

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
