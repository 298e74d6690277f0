"""The Kombu transport for a cluster of several nodes."""

from functools import cached_property
from typing import Any

from kombu_delayq import transport as one_server
from kombu_delayq.cluster.channel import ClusterChannel
from kombu_delayq.cluster.poller import ClusterPoller
from kombu_delayq.cluster.pool import shared_topology
from kombu_delayq.cluster.topology import Node, Topology
from kombu_delayq.urls import hosts


class Transport(one_server.Transport):
    """Redis Cluster with delayed delivery.

    Takes the URLs ``delayq+cluster://host1,host2/0`` and ``delayqs+cluster://…``.
    """

    Channel = ClusterChannel
    Poller = ClusterPoller
    has_nodes = True

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.slots = True

    @cached_property
    def seeds(self) -> list[Node]:
        """The nodes that the broker URL names."""
        client: Any = self.client
        found = hosts.parse(client.hostname or "localhost", client.port)
        return [Node(*address) for address in found]

    def topology_for(self, params: dict[str, Any]) -> Topology:
        """Returns the nodes and slots as this connection knows them.

        Args:
            params: Parameters of connections to the nodes.
        """
        if "topology" not in vars(self):
            self.topology = shared_topology(self.seeds, params)
        return self.topology
