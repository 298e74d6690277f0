"""The nodes of a Redis Cluster, as the overview shows them."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from celery_ext.serve.page.figures import QueueRow, size
from kombu_delayq.store.viewing.nodes import Cluster


class NodeRow(NamedTuple):
    """What the page shows of a node.

    Attributes:
        name: Its address.
        role: Its role, in words.
        slots: Number of its hash slots; None for a replica.
        queues: Number of queues on it; None for a replica.
        memory: Its memory in words; empty if it is not known.
        behind: How far a replica is behind its primary; empty if that is not known.
        state: How it is.
        is_well: Whether it serves as it should.
    """

    name: str
    role: str
    slots: int | None
    queues: int | None
    memory: str
    behind: str
    state: str
    is_well: bool


def nodes_of(cluster: Cluster | None, queues: Sequence[QueueRow]) -> list[NodeRow]:
    """Returns the rows of a cluster's nodes; none on a server without hash slots."""
    if cluster is None:
        return []
    down, living = (
        {node.id for node in cluster.down},
        Counter(row.node for row in queues),
    )
    return [
        NodeRow(
            node.name,
            f"replica of {node.primary}" if node.primary else node.role,
            None if node.primary else node.count,
            None if node.primary else living[node.name],
            "" if node.memory is None else size(node.memory.used),
            "" if node.lag_bytes is None else size(node.lag_bytes),
            node.state + (f", {node.moving:,} slots on their way" if node.moving else ""),
            node.id not in down,
        )
        for node in cluster.nodes
    ]
