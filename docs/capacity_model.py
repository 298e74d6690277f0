"""Reckons what a load takes of Redis: memory, cores, nodes, connections. ``capacity.py`` is the command.

What a message costs stands in ``capacity.json``. The page ``capacity.md`` says what is reckoned and why.
"""

from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any, NamedTuple

GIB, DAY_S, BATCH = 1024**3, 86_400, 200
#: Bytes of a node of a list (``list-max-listpack-size -2``), and what Redis adds to a node and to an entry.
LIST_NODE, LIST_NODE_ADDS, LIST_ENTRY_ADDS = 8192, 48, 11
#: Hash tables that have an entry for each delayed message (of due times, of bodies), and bytes of a place in them.
TABLES, POINTER = 2, 8
#: The tiers beside Redis: bytes on disk for a row, beside those of its message or in all; rows/s that one promoter
#: loads into Redis; how long before their due time, in s. Source: docs/how-to/months-ahead.md, how-to/spark/far.md.
JOURNAL_ADDS, JOURNAL_ROWS_S, JOURNAL_LEAD_S = 350, 20_000, 1_800
PARQUET_ROW, PARQUET_ROWS_S, PARQUET_LEAD_S = 30, 60_000, 7_200
#: Nodes up to which Redis Cluster is made. Source: its specification.
MOST_NODES = 1_000
#: Queues or parts of queues for each node. So few are even only if their slots are moved; by hash alone take five.
PARTS_A_NODE = 2
#: Least and most nodes of a cluster that are tried.
FEWEST, TRIED = 3, 1 << 20


def _given(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Load:
    """What is asked of the whole."""

    waiting: float = _given(0.0, "delayed messages that wait at a time")
    ready: float = _given(0.0, "messages that are due and wait for a worker")
    rate: float = _given(0.0, "messages a second that are published, and as many consumed")
    delayed: float = _given(1.0, "share of these that are delayed")
    bulk: float = _given(0.0, "share of these that are published many at a time (send_many, Spark)")
    size: int = _given(1000, "bytes of a message, as Celery writes it")
    queues: int = _given(1, "queues, all with the same load")
    workers: int = _given(1, "workers, each with one consumer")
    queues_per_worker: int = _given(1, "queues that a worker consumes")
    prefetch: int = _given(16, "messages that a worker holds")
    backlog: bool = _given(False, "workers always find messages, so that they take eight at once")
    gossip: bool = _given(False, "workers run with Celery's gossip: each one hears the heartbeats of all")

    @property
    def delayed_rate(self) -> float:
        """Delayed messages/s."""
        return self.rate * self.delayed

    @property
    def delay_s(self) -> float:
        """How long a message waits on average: Little's law."""
        return self.waiting / self.delayed_rate if self.delayed_rate else inf


@dataclass(frozen=True)
class Node:
    """What a node of Redis may be used for."""

    memory_gib: float = _given(64.0, "memory of a node, GiB")
    spare: float = _given(0.4, "share of it that stays free: buffers, fragmentation, copies during a snapshot")
    core: float = _given(0.6, "share of the one core for commands that may be used")
    connections: int = _given(10_000, "maxclients")
    gbit_s: float = _given(10.0, "network of a node, Gbit/s")
    replicas: int = _given(1, "replicas of each primary")


class Limit(NamedTuple):
    """A limit, what the load takes of it, and what to do when it is reached."""

    name: str
    used: float
    limit: float
    unit: str
    then: str

    @property
    def share(self) -> float:
        """1 where the limit is reached."""
        return self.used / self.limit


class Capacity:
    """Reckons with what was measured.

    Args:
        costs: The contents of ``capacity.json``.
        load: What is asked.
        node: What a node has.
        nodes: Primaries over which the load is spread evenly; 1 is a Redis that is no cluster.
        parts: Parts over which each queue is spread (``celery_ext.spread``).
    """

    def __init__(self, costs: dict[str, Any], load: Load, node: Node, nodes: int = 1, parts: int = 1) -> None:
        self.costs, self.load, self.node, self.nodes, self.parts = costs, load, node, nodes, parts
        self.layout = "plain" if nodes == 1 else "slots"

    def us(self, what: str, *, alone: bool = False) -> float:
        """Returns Redis's CPU time for a message in µs; ``alone`` if Redis sleeps until the message comes."""
        busy = self.costs["redis_us"][self.layout]
        fixed, per_kb = (self.costs["alone_us"][self.layout] if alone else busy).get(what, busy[what])
        return float(fixed + per_kb * self.load.size / 1000)

    def memory(self) -> dict[str, float]:
        """Returns the bytes of all primaries, by what they are for."""
        load, of = self.load, self.costs["bytes"]
        queues = load.queues * self.parts
        tables = TABLES * POINTER * power_of_two(load.waiting / queues) * queues if load.waiting else 0
        body = allocated(load.size + 4)
        note = allocated(load.size * of["note"])
        return {
            "waiting": load.waiting * (of["waiting"] + body) + tables,
            "ready": load.ready * listed(load.size),
            "in hand": load.workers * load.prefetch * (of["held"] + note),
            "connections": self.nodes * self.connections() * of["connection"],
        }

    def queue_us(self, *, alone: bool = False) -> dict[str, float]:
        """Returns the CPU time of all primaries for messages, in µs a second."""
        load, late = self.load, self.load.delayed_rate
        # While a call runs, messages of the next one become due.
        call = self.us("transfer_call", alone=alone) + self.costs["leader_call_us"]
        calls = late / (1 + late * call / 1e6)
        now = (load.rate - late) * (
            (1 - load.bulk) * self.us("publish", alone=alone) + load.bulk * self.us("delay_many")
        )
        one, many = (1 - load.bulk) * self.us("delay", alone=alone), load.bulk * self.us("delay_many")
        return {
            "publish": now + late * (one + many),
            "transfer": calls * self.us("transfer_call", alone=alone) + late * self.us("transfer"),
            "consume": load.rate * (self.us("consume_many") if load.backlog else self.us("consume", alone=alone)),
        }

    def workers_us(self) -> dict[str, float]:
        """Returns the CPU time of all primaries for workers and each other, whatever they do, in µs a second."""
        load, idle = self.load, self.costs["idle"][self.layout]
        lists = load.workers * load.queues_per_worker * self.parts
        found = {
            "idle workers": idle["fleet_us"] + load.workers * idle["worker_us"] + lists * idle["queue_us"],
            "nodes": self.nodes * idle["node_us"],
        }
        if load.gossip:
            # Each worker sends a heartbeat every 2 s, and all hear it; a cluster passes it on to each node.
            found["gossip"] = load.workers / 2 * (load.workers + self.nodes - 1) * self.costs["heard_us"]
        return found

    def core(self, parts_of: float) -> float:
        """Returns how busy a core is that has one of so many equal parts of the load: 1 is all of it.

        A message that finds Redis asleep costs ``alone``, and one that finds it at work costs what it costs a busy one.
        """
        others = sum(self.workers_us().values()) / self.nodes
        alone = (sum(self.queue_us(alone=True).values()) / parts_of + others) / 1e6
        busy = (sum(self.queue_us().values()) / parts_of + others) / 1e6
        return alone / (1 + alone - busy) if busy < 1 else busy

    def connections(self) -> float:
        """Returns the connections of a node: of each worker some, and one for each of its queues that live there."""
        load, of = self.load, self.costs["connections"][self.layout]
        return float(load.workers * (of["worker"] + of["queue"] * load.queues_per_worker * self.parts / self.nodes))

    def logged_s(self) -> float:
        """Returns the bytes a second that all primaries write to their logs, and to each replica."""
        load, late = self.load, self.load.delayed_rate
        shares = {"delay": late, "transfer": late, "publish": load.rate - late, "consume": load.rate}
        log = self.costs["log_bytes"]
        return float(sum(share * (log[what][0] + log[what][1] * load.size) for what, share in shares.items()))

    def limits(self) -> list[Limit]:
        """Returns all limits, the nearest one first."""
        load, node, nodes = self.load, self.node, self.nodes
        gib = sum(self.memory().values()) / nodes / GIB
        network = (load.rate * 2 * (load.size + 300) + self.logged_s() * node.replicas) * 8 / 1e9 / nodes
        leader = self.us("transfer") + self.costs["leader_message_us"]
        most = BATCH / (self.us("transfer_call") + self.costs["leader_call_us"] + BATCH * leader) * 1e6
        spread = "a queue is on one node: spread it over parts (celery_ext.spread)"
        fewer = "raise maxclients, or let fewer and larger workers consume"
        leaders = "several apps, or prefixes (global_keyprefix), each of which has a leader of its own"
        found = [
            Limit("memory", gib, node.memory_gib * (1 - node.spare), "GiB a node", "more nodes, or a far tier"),
            Limit("Redis core", self.core(nodes), node.core, "of a core", "more nodes (kombu_delayq.cluster)"),
            Limit("one queue", self.core(load.queues * self.parts), node.core, "of a core", spread),
            Limit("transfer leader", load.delayed_rate, most, "messages/s", leaders),
            Limit("connections", self.connections(), node.connections, "a node", fewer),
            Limit("network", network, node.gbit_s, "Gbit/s a node", "more nodes"),
        ]
        if load.gossip:
            quiet = "start workers with --without-gossip --without-mingle --without-heartbeat"
            found.append(Limit("gossip", self.workers_us()["gossip"] / nodes / 1e6, node.core / 4, "of a core", quiet))
        if nodes > 1:
            found.append(
                Limit("nodes", nodes * (1 + node.replicas), MOST_NODES, "", "several clusters, one for each app")
            )
        return sorted(found, key=lambda limit: -limit.share)

    def planned(self) -> "Capacity":
        """Returns the same load on as few nodes, and in as few parts of each queue, as can bear it.

        Raises:
            ValueError: No number of nodes can: what workers cost each node is too much.
        """
        nodes, fits = 1, ("memory", "Redis core", "network")
        while nodes < TRIED:
            parts = 1 if nodes == 1 else ceil(PARTS_A_NODE * nodes / self.load.queues)
            tried = Capacity(self.costs, self.load, self.node, nodes, parts)
            worst = max(limit.share for limit in tried.limits() if limit.name in fits)
            if worst <= 1:
                return tried
            nodes = max(FEWEST, nodes + 1, int(nodes * min(worst, 1.1)) if nodes >= FEWEST else FEWEST)
        raise ValueError("no number of nodes bears what so many workers cost each of them")

    def tiers(self) -> list[dict[str, Any]]:
        """Returns for each tier what waits in Redis, its memory, the tier's disk, and how many promoters it takes."""
        load = self.load
        rows = [("Redis alone", load.waiting, 0.0, 0)]
        for name, lead_s, row, rows_s in (
            ("journal, PostgreSQL", JOURNAL_LEAD_S, load.size + JOURNAL_ADDS, JOURNAL_ROWS_S),
            ("Parquet, by Spark", PARQUET_LEAD_S, PARQUET_ROW, PARQUET_ROWS_S),
        ):
            if load.waiting and load.delay_s > DAY_S:  # what is due sooner waits in Redis in any case
                near = min(load.waiting, load.delayed_rate * lead_s)
                rows.append((name, near, (load.waiting - near) * row, ceil(load.delayed_rate / rows_s)))
        found = []
        for name, near, disk, promoters in rows:
            gib = Capacity(self.costs, replace(load, waiting=near), self.node).memory()["waiting"] / GIB
            found.append(
                {"tier": name, "in_redis": near, "memory_gib": gib, "disk_gib": disk / GIB, "promoters": promoters}
            )
        return found

    def breaks_at(self) -> list[tuple[Limit, float]]:
        """Returns each limit, and at how many times this load it is reached, the first one first.

        Messages and workers grow alike; the nodes and queues stay.
        """
        found = []
        for at, limit in enumerate(self.limits()):
            low, high = 1e-9, 1e9
            for _ in range(80):
                middle = (low * high) ** 0.5
                shares = {one.name: one.share for one in self._times(middle).limits()}
                low, high = (low, middle) if shares[limit.name] >= 1 else (middle, high)
            found.append((high, at, limit))
        return [(limit, times) for times, _, limit in sorted(found) if times < 1e8]

    def _times(self, times: float) -> "Capacity":
        load = self.load
        grown = {name: getattr(load, name) * times for name in ("waiting", "ready", "rate", "workers")}
        return Capacity(self.costs, replace(load, **grown), self.node, self.nodes, self.parts)

    def clients(self) -> dict[str, float]:
        """Returns the cores that publishers and workers need, beside what the tasks do."""
        load, of = self.load, self.costs["client_us"]
        one = load.delayed * of["delay"] + (1 - load.delayed) * of["publish"]
        publish = load.rate * ((1 - load.bulk) * one + load.bulk * of["delay_many"])
        return {"publishers": publish / 1e6, "workers": load.rate * of["consume"] / 1e6}


def allocated(size: float) -> int:
    """Returns what Redis's allocator gives for a number of bytes: jemalloc has four classes for each doubling."""
    step = 16 if size <= 128 else power_of_two(size) // 8
    return step * ceil(size / step)


def power_of_two(count: float) -> int:
    """Returns the least power of two that is no less than a count."""
    return 1 << max(0, ceil(count) - 1).bit_length()


def listed(size: int) -> float:
    """Returns the bytes that a message takes in a list: as many share a node as fit into it."""
    count = max(1, LIST_NODE // (size + LIST_ENTRY_ADDS))
    return (allocated(count * (size + LIST_ENTRY_ADDS)) + LIST_NODE_ADDS) / count
