"""The transport for Redis Cluster: everything that knows that there are several nodes."""

from kombu_delayq.cluster.queue_fetchers import QueueFetchers
from kombu_delayq.cluster.transport import Transport

__all__ = ["QueueFetchers", "Transport"]
