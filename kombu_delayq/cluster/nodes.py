"""The nodes of a Redis Cluster: which there are, how they are, and on which one a queue lives."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from kombu_delayq.cluster.pool import NodePools
from kombu_delayq.cluster.slots import SLOTS, slot_of_key
from kombu_delayq.store import Cluster, Memory, Node, State, StorePart
from kombu_delayq.text import as_text

#: How long a command waits for a node while it is known that slots have none, in s.
SHORT_RETRY_S = 0.1
#: Flags of ``CLUSTER NODES`` that say more of a node's state than that it is known, the worst first.
_STATES: dict[str, State] = {"fail": "failed", "noaddr": "failed", "fail?": "suspected", "handshake": "joining"}


class Nodes(StorePart):
    """Looks at the nodes of a Redis Cluster; see ``Store.nodes``."""

    def overview(self) -> Cluster:
        """Asks each node how it is, two round trips to each. A node that does not answer is no error.

        While slots have no living node, other calls of this store do not wait for one.

        Raises:
            redis.exceptions.ConnectionError: No node answers.
        """
        found = _Answers()
        for name, client in self._client.pool.clients(replicas=True).items():
            try:
                view = as_text(client.execute_command("CLUSTER", "NODES"))
            except ResponseError as refusal:
                found.refusal = str(refusal)
            except (RedisError, OSError):
                found.silent.add(name)
            else:
                found.views[name] = view
                found.figures[_myself(view)[0]] = _info(client)
        if not found.views and not found.refusal:
            raise RedisConnectionError(f"none of {', '.join(sorted(found.silent))} answers")
        if not found.views:
            return Cluster((), self._slot_of, error=found.refusal)
        nodes = _ordered([_judged(node, found) for node in _nodes(found)], found.figures)
        uncovered = SLOTS - sum(node.count for node in nodes if not node.is_down)
        cluster = Cluster(nodes, self._slot_of, uncovered)
        self._settle_retries(is_whole=not cluster.uncovered)
        return cluster

    def _slot_of(self, queue: str) -> int:
        return slot_of_key(self._client.ready(queue)[0])

    def _settle_retries(self, *, is_whole: bool) -> None:
        pool = self._client.pool
        if isinstance(pool, NodePools) and not is_whole:
            pool.retry_s = SHORT_RETRY_S
        elif isinstance(pool, NodePools) and vars(pool).get("retry_s") == SHORT_RETRY_S:
            del pool.retry_s


@dataclass
class _Answers:
    """What nodes answer.

    Attributes:
        views: By name, what a node knows of all nodes, as ``CLUSTER NODES`` answers.
        figures: By id, what a node says of itself.
        silent: Names of those that do not answer.
        refusal: Why a node refuses to say what it knows; empty if none does.
    """

    views: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Mapping[str, str]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    refusal: str = ""


def _info(client: Redis) -> Mapping[str, str]:
    """Returns what a node says of itself; nothing where it may not."""
    try:
        found: Any = client.execute_command("INFO")
    except (RedisError, OSError):
        return {}
    if isinstance(found, Mapping):  # redis-py's client reads it
        return {str(name): str(value) for name, value in found.items()}
    pairs = (line.split(":", 1) for line in as_text(found).splitlines() if ":" in line)
    return dict(pairs)


def _myself(view: str) -> list[str]:
    """Returns the fields of the node that answers, in its own answer."""
    return next(fields for line in view.splitlines() if "myself" in (fields := line.split())[2].split(","))


def _epoch(view: str) -> int:
    return max(int(line.split()[6]) for line in view.splitlines())


def _nodes(found: _Answers) -> Iterator[Node]:
    """Yields the nodes, without what they say of themselves.

    Source: https://redis.io/docs/latest/commands/cluster-nodes/
    """
    own = {(fields := _myself(view))[0]: (name, fields) for name, view in found.views.items()}
    view = max(found.views.values(), key=_epoch)  # that of a node that is cut off is the oldest
    rows = [line.split() for line in view.splitlines()]
    names = {row[0]: own[row[0]][0] if row[0] in own else _address(row[1], found.silent) for row in rows}
    for identity, _, flags, primary, _, _, _, _, *slots in rows:
        state = next((state for flag, state in _STATES.items() if flag in flags.split(",")), "ok")
        served = [slot.split("-") for slot in slots if not slot.startswith("[")]
        ranges = tuple((int(ends[0]), int(ends[-1])) for ends in served)
        moving = sum("->-" in slot for slot in own[identity][1][8:]) if identity in own else 0
        yield Node(
            identity,
            names[identity],
            "" if primary == "-" else names.get(primary, primary),
            ranges,
            cast(State, state),
            moving=moving,
        )


def _address(written: str, known: Collection[str]) -> str:
    """Returns the known one of the addresses in ``ip:port@bus,host``, else that with the name of the host, if any."""
    address, _, more = written.partition("@")
    host = more.partition(",")[2].split(",")[0]
    named = f"{host}:{address.rpartition(':')[2]}" if host else address
    return address if address in known else named


def _judged(node: Node, found: _Answers) -> Node:
    """Returns a node with what it says of itself, and whether it answers."""
    figures = found.figures.get(node.id)
    if figures is None:
        is_silent = node.name in found.silent and node.state in ("ok", "suspected")
        return replace(node, state="unreachable") if is_silent else node
    memory = Memory(_number(figures, "used_memory"), _number(figures, "maxmemory"), figures.get("redis_version", ""))
    state = node.state
    if state == "ok" and figures.get("loading") == "1":
        state = "loading"
    elif state == "ok" and node.primary and figures.get("master_link_status") == "down":
        state = "unlinked"
    return replace(node, state=state, memory=memory if memory.used else None)


def _ordered(nodes: Sequence[Node], figures: Mapping[str, Mapping[str, str]]) -> list[Node]:
    """Returns the primaries by their slots and names, each with its replicas behind it."""
    ordered = []
    primaries = [node for node in nodes if not node.primary]
    for primary in sorted(primaries, key=lambda node: (node.ranges or ((SLOTS, 0),), node.name)):
        own = sorted((node for node in nodes if node.primary == primary.name), key=lambda node: node.name)
        lags = (_lag(figures.get(primary.id), figures.get(node.id)) for node in own)
        ordered += [primary, *(replace(node, lag_bytes=lag) for node, lag in zip(own, lags, strict=True))]
    placed = {node.id for node in ordered}
    return ordered + [node for node in nodes if node.id not in placed]


def _lag(primary: Mapping[str, str] | None, replica: Mapping[str, str] | None) -> int | None:
    if not primary or not replica or "slave_repl_offset" not in replica:
        return None
    return max(_number(primary, "master_repl_offset") - _number(replica, "slave_repl_offset"), 0)


def _number(found: Mapping[str, str], name: str) -> int:
    try:
        return int(found.get(name, 0))
    except ValueError:
        return 0
