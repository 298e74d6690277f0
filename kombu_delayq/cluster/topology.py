"""Which node of a cluster has which hash slot, as far as this process knows."""

import os
import random
from collections.abc import Callable, Iterable, Mapping
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

from kombu.log import get_logger
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from kombu_delayq.cluster.slots import SLOTS
from kombu_delayq.errors import InvalidBrokerURL
from kombu_delayq.redis import NotReached, is_pool_full
from kombu_delayq.text import as_text

logger = get_logger(__name__)

#: The cluster is asked at most this often, in s, however many commands fail meanwhile.
PAUSE_S = 0.2
#: The cluster is asked again after so long, in s, although no command has failed.
OLD_S = 15.0
#: How long a node may take to name the nodes and slots, in s. A node that has not answered lately is asked every
#: ``PROBE_EVERY_S`` at most: it may hang and still accept connections. A thread of its own asks it, and the caller, who
#: has other work, waits ``PROBED_S`` for that: a node that lives answers sooner.
ASK_S, PROBE_EVERY_S, PROBED_S = 1.0, 1.0, 0.05


class NodeAddress(NamedTuple):
    """Where a node listens, as the cluster announces it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Suspicion(NamedTuple):
    """A node does not answer.

    Attributes:
        since: Since when, in s of ``monotonic``.
        probe_at: When to ask it next.
        why: The error that it met with; empty if it only is late.
    """

    since: float
    probe_at: float
    why: str


class NoNode(NotReached):
    """No node of the cluster can run a command now, such as while a replica takes the place of its primary."""


class Topology:
    """The nodes of a cluster and their slots. Any thread may use it, also after a fork.

    The nodes are asked by ``CLUSTER SLOTS``: at first those of the broker URL, later those that were found. redis-py's
    own ``NodesManager`` keeps the same, but it asks over connections that it never closes, waits for a node that hangs
    as long as for a command, and is private to redis-py.

    Args:
        seeds: The nodes that the broker URL names.
        ask: Asks a node for its ``CLUSTER SLOTS``, and waits for the answer at most so many seconds.

    Attributes:
        version: Count of changes so far.
    """

    def __init__(self, seeds: Iterable[NodeAddress], ask: Callable[[NodeAddress, float], list[Any]]) -> None:
        self._seeds = tuple(seeds)
        self._ask = ask
        self._owners: list[NodeAddress | None] = [None] * SLOTS
        self.primaries: tuple[NodeAddress, ...] = ()
        self.replicas: tuple[NodeAddress, ...] = ()
        self.version = 0
        self._suspects: dict[NodeAddress, Suspicion] = {}  # replaced, never changed: threads share it
        self._asked_at = self._known_at = float("-inf")
        self._asking = os.getpid(), Lock()

    def node_of(self, slot: int) -> NodeAddress:
        """Returns the primary of a slot.

        Raises:
            NoNode: None is known.
        """
        self.know()
        node = self._owners[slot]
        if node is None:
            raise NoNode(f"the cluster has no node for the hash slot {slot} now")
        return node

    def sure_of(self, slot: int) -> NodeAddress | None:
        """Returns the primary of a slot if there is no reason to doubt it; else None."""
        node = self._owners[slot]
        return None if node in self._suspects or monotonic() - self._known_at >= OLD_S else node

    def owner_of(self, slot: int) -> NodeAddress | None:
        """Returns the primary of a slot as far as is known, without asking."""
        return self._owners[slot]

    def any_order(self) -> list[NodeAddress]:
        """Returns all primaries in random order, those last that did not answer lately."""
        self.know()
        return self._in_order(self.primaries)

    def know(self) -> None:
        """Asks for the nodes if none is known yet, or if the last answer is old."""
        age_s = monotonic() - self._known_at
        if age_s < OLD_S:
            return
        if self.primaries:
            self.refresh(wait=False)
        else:
            self.refresh()
            if not self.primaries:
                asked = ", ".join(map(str, self._seeds))
                raise NoNode(f"no node of the cluster has slots: {asked}; `redis-cli --cluster create` assigns them")

    def refresh(self, *, wait: bool = True) -> bool:
        """Asks for the nodes and slots again, unless somebody has just done so. Returns whether anything changed.

        Args:
            wait: Whether to wait for another thread that asks just now.

        Raises:
            InvalidBrokerURL: A node says that it is in no cluster.
            NoPermissionError: The user may not ask.
        """
        before = self.version
        asking = self._lock()
        if not asking.acquire(blocking=wait):
            return False
        try:
            if monotonic() - self._asked_at >= PAUSE_S:
                self._find()
                self._asked_at = monotonic()
        finally:
            asking.release()
        return self.version != before

    def _lock(self) -> Lock:
        """Returns what the thread holds that asks. After a fork the one who held it may be a thread of the parent."""
        pid, asking = self._asking
        if pid != os.getpid():
            asking = Lock()  # two threads may make one each, and then both ask
            self._asking = os.getpid(), asking
        return asking

    def suspect(self, node: NodeAddress, error: Exception | None = None, *, late_s: float = 0.0) -> None:
        """Notes that a node does not answer: it is asked whether it lives before it gets another command.

        Args:
            node: The node.
            error: The error that it met with. A pool without a free connection says nothing about its node.
            late_s: For how long an answer has been awaited, in s.
        """
        if node not in self._suspects and not (error and is_pool_full(error)):
            self._suspects = {**self._suspects, node: Suspicion(monotonic() - late_s, 0.0, str(error or ""))}

    def silence(self, *nodes: NodeAddress) -> NoNode:
        """Returns the error that some nodes, by default all, do not answer, with what one of them has met with."""
        reasons = [found.why for node, found in self._suspects.items() if found.why and (not nodes or node in nodes)]
        who = ", ".join(f"the node {node}" for node in nodes) or "no node of the cluster"
        return NoNode(f"{who} {'does not answer' if nodes else 'answers'}{': ' if reasons else ''}{(*reasons, '')[0]}")

    def may_answer(self, node: NodeAddress) -> bool:
        """Whether a node is worth a command. One that did not answer lately is asked now and then whether it lives."""
        suspicion = self._suspects.get(node)
        if suspicion is None:
            return True
        if monotonic() < suspicion.probe_at:
            return False
        self._suspects = {**self._suspects, node: suspicion._replace(probe_at=monotonic() + PROBE_EVERY_S)}
        probe = Thread(target=self._probe, args=(node,), name="delayq-probe", daemon=True)
        try:
            probe.start()
        except RuntimeError:  # the process ends, and gets no new thread
            self._probe(node)
        else:
            probe.join(PROBED_S)
        return node not in self._suspects

    def away_s(self, node: NodeAddress) -> float:
        """Returns for how long a node has not answered, in s; 0 for one that does."""
        suspicion = self._suspects.get(node)
        return 0.0 if suspicion is None else monotonic() - suspicion.since

    def trust(self, node: NodeAddress) -> None:
        """Notes that a node answers."""
        if node in self._suspects:
            self._suspects = {other: found for other, found in self._suspects.items() if other != node}

    def moved(self, slot: int, node: NodeAddress) -> None:
        """Notes the node of a slot, as another node has said."""
        self._owners[slot] = node
        if node not in self.primaries:
            self.primaries = (*self.primaries, node)
            self.replicas = tuple(other for other in self.replicas if other != node)
            self.version += 1
        self._known_at = float("-inf")  # other slots have moved, too

    def is_live(self, node: NodeAddress) -> bool:
        """Whether a node is in the cluster, and answers as far as is known."""
        suspicion = self._suspects.get(node)
        return (suspicion is None or not suspicion.probe_at) and (node in self.primaries or node in self.replicas)

    def _probe(self, node: NodeAddress) -> None:
        """Trusts a node again if it names the nodes and slots."""
        try:
            found = self._ask(node, ASK_S)
            if found:  # a node that has lost its memory knows none
                self._take(node, found)
        except (RedisError, OSError) as error:
            logger.debug("the node %s does not answer yet: %s", node, error)
        else:
            self.trust(node)

    def _find(self) -> None:
        known = dict.fromkeys([*self._in_order(self.primaries), *self._in_order(self.replicas), *self._seeds])
        error: Exception | None = None
        for node in sorted(known, key=lambda node: node in self._suspects):
            try:
                found = self._ask(node, ASK_S)
            except NoPermissionError:
                raise
            except ResponseError as refusal:
                if "cluster support disabled" in str(refusal).lower():
                    raise InvalidBrokerURL(
                        f"{node} is no node of a Redis Cluster; write delayq://{node}/0, or delayqs://… for TLS"
                    ) from None
                error = refusal
            except (RedisError, OSError) as lost:
                self.suspect(node, lost)
                error = lost
            else:
                if found:
                    self.trust(node)
                    self._take(node, found)
                    return
        if error is not None:
            logger.debug("no node of the cluster answers: %s", error)
            if not self.primaries:
                raise error

    def _take(self, asked: NodeAddress, found: list[Any]) -> None:
        owners: list[NodeAddress | None] = [None] * SLOTS
        primaries: dict[NodeAddress, None] = {}
        replicas: dict[NodeAddress, None] = {}
        for first, last, *nodes in found:
            primary, *others = [_node(asked, fields) for fields in nodes]
            owners[first : last + 1] = [primary] * (last + 1 - first)
            primaries[primary] = None
            replicas.update(dict.fromkeys(others))
        self._known_at = monotonic()
        before = {*self.primaries}, {*self.replicas}, self._owners
        self._owners, self.primaries, self.replicas = owners, tuple(primaries), tuple(replicas)
        if before != ({*primaries}, {*replicas}, owners):
            self.version += 1
            if before[0] not in (set(), {*primaries}):
                logger.info("the primaries of the cluster are now %s", ", ".join(sorted(map(str, primaries))))

    def _in_order(self, nodes: Iterable[NodeAddress]) -> list[NodeAddress]:
        return sorted(nodes, key=lambda node: (node in self._suspects, random.random()))


def _node(asked: NodeAddress, fields: list[Any]) -> NodeAddress:
    """Returns a node of a reply to ``CLUSTER SLOTS``. Without a host, it has that of the node that was asked."""
    host, port, *_, more = [*fields, []] if len(fields) < 4 else fields
    name = as_text(host or b"")
    if name == "?":  # the node has no name yet; its address is among the rest
        pairs = more.items() if isinstance(more, Mapping) else zip(more[::2], more[1::2], strict=False)
        name = {as_text(key): as_text(value) for key, value in pairs}.get("ip", "")
    return NodeAddress(name or asked.host, int(port))
