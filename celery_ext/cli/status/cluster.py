"""The nodes of a Redis Cluster in the report of ``delayq status``: JSON, lines, and what a check says of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from celery_ext.cli.colours import bad, good, warning
from celery_ext.cli.output import escaped, fit_table, size
from kombu_delayq.store import OperatorStore
from kombu_delayq.store.viewing.nodes import Cluster, Node

_DOWN = ("failed", "unreachable", "suspected", "unlinked", "loading")
_ROLES = (("primary", "primaries"), ("replica", "replicas"))
_STATES = {
    "failed": "FAILED",
    "unreachable": "DOES NOT ANSWER",
    "suspected": "suspected to have failed",
    "unlinked": "has lost its primary",
    "loading": "loads its data",
    "joining": "joins",
}
_COLOURS = {
    "ok": good,
    "failed": bad,
    "unreachable": bad,
    "suspected": warning,
    "unlinked": warning,
    "loading": warning,
}


def values_of(cluster: Cluster, away: Sequence[str]) -> dict[str, Any]:
    """Returns the nodes as ``--json`` prints them.

    Args:
        cluster: The nodes.
        away: Why the names of the queues are not known because their node is away; nothing if they are.
    """
    return {
        "queues_error": away[0] if away else None,
        "slots_uncovered": cluster.uncovered,
        "error": cluster.error or None,
        "nodes": [_node(node) for node in cluster.nodes],
    }


def place_of(store: OperatorStore, cluster: Cluster | None, queue: str) -> dict[str, Any]:
    """Returns the hash slot of a queue and the name of its node; nothing for a server without slots."""
    slot, node = store.nodes.place_of(queue, cluster)
    return {} if slot is None else {"slot": slot, "node": node}


def _node(node: Node) -> dict[str, Any]:
    return {
        "node": node.name,
        "role": node.role,
        "primary": node.primary or None,
        "state": node.state,
        "slots": node.count,
        "slot_ranges": [list(ends) for ends in node.slots],
        "slots_moving": node.moving,
        "used_memory": node.memory and node.memory.used,
        "maxmemory": node.memory and node.memory.limit,
        "version": node.memory and node.memory.version,
        "lag_bytes": node.lag_bytes,
    }


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line about the nodes; none for a server without slots."""
    cluster = report["cluster"]
    if cluster is None:
        return
    if cluster["error"]:
        yield "cluster  " + bad(escaped(f"hash slots; its nodes are not known: {cluster['error']}"))
        return
    roles = Counter(node["role"] for node in cluster["nodes"])
    parts = [f"{roles[role]:,} {role if roles[role] == 1 else name}" for role, name in _ROLES if roles[role]]
    uncovered = cluster["slots_uncovered"]
    served = bad(f"{uncovered:,} SLOTS ARE SERVED BY NOBODY") if uncovered else "all slots are served"
    yield f"cluster  {', '.join(parts)}; {served}"
    if cluster["queues_error"]:
        why = f"the node that knows the queues and the leader is away: {cluster['queues_error']}"
        yield "         " + bad(escaped(why))


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """Yields a table of the nodes; nothing for a server without slots."""
    found = (report["cluster"] or {}).get("nodes", [])
    queues = Counter(row["node"] for row in report["queues"] if "node" in row)
    rows = [
        [
            escaped(node["node"]),
            node["role"] if node["primary"] is None else escaped(f"replica of {node['primary']}"),
            _ranges(node),
            f"{queues[node['node']]:,}" if node["primary"] is None else "",
            _memory(node),
            "" if node["lag_bytes"] is None else size(node["lag_bytes"]),
            _state(node["state"]),
        ]
        for node in found
    ]
    if rows:
        head = ["NODE", "ROLE", "SLOTS", "QUEUES", "MEMORY", "BEHIND BY", "STATE"]
        yield from ("", *fit_table(head, rows, right={3, 4, 5}, title=0))


def _state(state: str) -> str:
    words = _STATES.get(state, state)
    return _COLOURS[state](words) if state in _COLOURS else words


def _ranges(node: Mapping[str, Any]) -> str:
    ranges = [f"{first}-{last}" if first != last else f"{first}" for first, last in node["slot_ranges"]]
    shown = ranges[0] if len(ranges) == 1 else f"{node['slots']:,} in {len(ranges):,} ranges" if ranges else ""
    return f"{shown}, {node['slots_moving']:,} moving" if node["slots_moving"] else shown


def _memory(node: Mapping[str, Any]) -> str:
    if node["used_memory"] is None:
        return ""
    return size(node["used_memory"]) + (f" of {size(node['maxmemory'])}" if node["maxmemory"] else "")
