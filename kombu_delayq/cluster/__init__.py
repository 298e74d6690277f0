"""The transport for Redis Cluster: everything that knows that there are several nodes."""

from kombu_delayq.cluster.nodes import Cluster, Node, Nodes, State
from kombu_delayq.cluster.queue_fetchers import QueueFetchers
from kombu_delayq.cluster.transport import Transport

__all__ = ["Cluster", "Node", "Nodes", "QueueFetchers", "State", "Transport"]
