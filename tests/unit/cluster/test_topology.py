"""``Topology``: what it says of a cluster that nobody can use."""

import pytest

from kombu_delayq.cluster.topology import Node, NoNode, Topology


def test_a_cluster_without_slots_is_not_called_silent() -> None:
    """Nodes that were never joined to a cluster answer that nobody has slots; the error says what to do."""
    topology = Topology([Node("127.0.0.1", 7000)], lambda node, timeout_s: [])
    with pytest.raises(NoNode, match=r"no node of the cluster has slots: 127\.0\.0\.1:7000.*--cluster create"):
        topology.any_order()
