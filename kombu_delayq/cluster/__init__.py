"""The transport for Redis Cluster: everything that knows that there are several nodes."""

from typing import TYPE_CHECKING

from kombu_delayq.cluster.nodes import Cluster, Node, Nodes, State
from kombu_delayq.cluster.slots import SlotKeys
from kombu_delayq.later import later

if TYPE_CHECKING:
    from kombu_delayq.cluster.queue_fetchers import QueueFetchers
    from kombu_delayq.cluster.server import SlotServer
    from kombu_delayq.cluster.transport import Transport

__all__ = ["Cluster", "Node", "Nodes", "QueueFetchers", "SlotKeys", "SlotServer", "State", "Transport"]

#: What only a process on a cluster needs. All others look for nodes, too: each worker when it starts.
__getattr__ = later(__name__, {"QueueFetchers": "queue_fetchers", "SlotServer": "server", "Transport": "transport"})
