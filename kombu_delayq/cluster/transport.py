"""The Kombu transport for a cluster of several nodes, and its poller."""

from contextlib import suppress
from functools import cached_property
from time import monotonic
from typing import Any

from kombu_delayq import transport as one_server
from kombu_delayq.cluster.channel import ClusterChannel
from kombu_delayq.cluster.pool import shared_topology
from kombu_delayq.cluster.server import SlotServer
from kombu_delayq.cluster.topology import NodeAddress, Topology
from kombu_delayq.consume import DelayedPoller
from kombu_delayq.urls import addresses_of

#: How often to look whether the node of the subscriptions is still there, in s.
LOOK_S = 1.0


class ClusterPoller(DelayedPoller):
    """Waits for messages. It moves the subscriptions of fanouts to another node when theirs has gone."""

    def __init__(self) -> None:
        super().__init__()
        self._looked_at = 0.0

    def on_poll_start(self) -> None:
        """Runs with each turn of an event loop."""
        if monotonic() - self._looked_at >= LOOK_S:
            self._looked_at = monotonic()
            for channel in list(self._channels):
                subscriptions = vars(channel).get("subclient")
                if subscriptions is not None and subscriptions.has_gone():
                    subscriptions.leave()
                    self.look()
        super().on_poll_start()

    def _on_connection_disconnect(self, connection: Any) -> None:
        """Forgets a connection of fanouts where no event loop runs; the next turn finds the one in its place."""
        self.look()
        for channel, client, kind in [key for key in self._chan_to_sock if key[1].connection is connection]:
            del self._chan_to_sock[channel, client, kind]
            for fd in [fd for fd, found in self._fd_to_chan.items() if found == (channel, kind)]:
                del self._fd_to_chan[fd]
                with suppress(KeyError, ValueError, OSError):
                    self.poller.unregister(fd)
        super()._on_connection_disconnect(connection)


class Transport(one_server.Transport):
    """Redis Cluster with delayed delivery.

    Takes the URLs ``delayq+cluster://host1,host2/0`` and ``delayqs+cluster://…``.
    """

    Channel = ClusterChannel
    Poller = ClusterPoller
    has_nodes = True

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.server = SlotServer()

    @cached_property
    def seeds(self) -> list[NodeAddress]:
        """The nodes that the broker URL names."""
        client: Any = self.client
        found = addresses_of(client.hostname or "localhost", client.port)
        return [NodeAddress(*address) for address in found]

    def topology_for(self, params: dict[str, Any]) -> Topology:
        """Returns the nodes and slots as this connection knows them.

        Args:
            params: Parameters of connections to the nodes.
        """
        if "topology" not in vars(self):
            self.topology = shared_topology(self.seeds, params)
        return self.topology
