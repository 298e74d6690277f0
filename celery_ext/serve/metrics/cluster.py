"""Makes metrics of the nodes of a Redis Cluster."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from kombu_delayq.connection.text import readable
from kombu_delayq.store.viewing.nodes import Cluster


def families_of(cluster: Cluster, slots: Mapping[str, int]) -> Iterator[Metric]:
    """Yields the metrics of nodes, and which queue is on which. A service that hides its nodes has no series.

    Args:
        cluster: The nodes.
        slots: By queue, its hash slot.
    """
    if cluster.uncovered is not None:
        text = "Hash slots that no living node serves. Queues in them can be neither published to nor consumed."
        yield GaugeMetricFamily("delayq_cluster_uncovered_slots", text, value=cluster.uncovered)
    text = "Whether a node answers, is not given up by the others, and, if a replica, follows its primary: 1 or 0."
    up = GaugeMetricFamily("delayq_cluster_node_up", text, labels=("node", "role"))
    text = "Memory that a node uses; absent while it does not answer."
    memory = GaugeMetricFamily("delayq_cluster_node_memory_bytes", text, labels=("node", "role"), unit="bytes")
    text = "How far a replica is behind its primary: what a failover would lose now."
    lag = GaugeMetricFamily("delayq_cluster_replica_lag_bytes", text, labels=("node",), unit="bytes")
    down = {node.id for node in cluster.down}
    for node in cluster.nodes:
        up.add_metric((node.name, node.role), float(node.id not in down))
        if node.memory is not None:
            memory.add_metric((node.name, node.role), node.memory.used)
        if node.lag_bytes is not None:
            lag.add_metric((node.name,), node.lag_bytes)
    text = "The hash slot of a queue, and the node that serves it."
    of_queue = GaugeMetricFamily("delayq_cluster_queue_slot", text, labels=("queue", "node"))
    for queue, slot in slots.items():
        of_queue.add_metric((readable(queue), cluster.node_of(slot) or ""), slot)
    yield from (up, memory, lag, of_queue)
