"""The transport for Redis Cluster: everything that knows that there are several nodes."""

from typing import TYPE_CHECKING

from kombu_delayq.later import later

if TYPE_CHECKING:
    from kombu_delayq.cluster.nodes import Nodes
    from kombu_delayq.cluster.server import SlotServer
    from kombu_delayq.cluster.slots import SlotKeys
    from kombu_delayq.cluster.transport import Transport

__all__ = ["Nodes", "SlotKeys", "SlotServer", "Transport"]

__getattr__ = later(__name__, {"Nodes": "nodes", "SlotKeys": "slots", "SlotServer": "server", "Transport": "transport"})
