"""The nodes of a Redis Cluster, as they are shown: how each is, and on which one a queue lives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kombu_delayq.store.types import Memory

#: ``failed`` and ``suspected`` are what other nodes say of a node, ``unreachable`` is what this process finds;
#: ``unlinked`` is a replica that has lost its primary.
State = Literal["ok", "joining", "loading", "unlinked", "suspected", "unreachable", "failed"]


@dataclass(frozen=True)
class Node:
    """A node of a cluster.

    Attributes:
        id: The node's id.
        name: Its address, ``host:port``.
        primary: Name of the primary of a replica; empty for a primary.
        ranges: First and last slot of each range that it serves.
        state: How it is.
        memory: Its memory; None if it does not answer.
        lag_bytes: How far a replica is behind its primary, in bytes of replication; None if unknown, and for a primary.
        moving: How many of its slots are on their way to another node, as far as it says.
    """

    id: str
    name: str
    primary: str = ""
    ranges: tuple[tuple[int, int], ...] = ()
    state: State = "ok"
    memory: Memory | None = None
    lag_bytes: int | None = None
    moving: int = 0

    @property
    def role(self) -> Literal["primary", "replica"]:
        """Its role."""
        return "replica" if self.primary else "primary"

    @property
    def is_down(self) -> bool:
        """Whether it does not serve."""
        return self.state in ("failed", "unreachable", "loading")

    @property
    def count(self) -> int:
        """Number of its slots."""
        return sum(last - first + 1 for first, last in self.ranges)


class Place(NamedTuple):
    """Where a queue lives.

    Attributes:
        slot: Its hash slot; None on a server without slots.
        node: Name of the node that serves the slot; None if nobody does.
    """

    slot: int | None = None
    node: str | None = None


@dataclass(frozen=True)
class Cluster:
    """The nodes behind a broker.

    Attributes:
        nodes: The nodes: each primary, with its replicas behind it.
        slot_of: Returns the hash slot of a queue, by its name.
        uncovered: Number of slots that no living node serves; None if the nodes are not known.
        error: Why the nodes are not known, such as a managed service that does not tell; else empty.
    """

    nodes: Sequence[Node]
    slot_of: Callable[[str], int]
    uncovered: int | None = None
    error: str = ""

    @property
    def down(self) -> list[Node]:
        """The nodes that do not serve as they should; one that joins is none of them."""
        return [node for node in self.nodes if node.is_down or node.state in ("suspected", "unlinked")]

    def node_of(self, slot: int) -> str | None:
        """Returns the name of the node that serves a slot; None if nobody does."""
        for node in self.nodes:
            if any(first <= slot <= last for first, last in node.ranges):
                return node.name
        return None

    def place_of(self, queue: str) -> Place:
        """Returns where a queue lives."""
        slot = self.slot_of(queue)
        return Place(slot, self.node_of(slot))


#: Where a queue lives on a server without hash slots.
NO_PLACE = Place()
