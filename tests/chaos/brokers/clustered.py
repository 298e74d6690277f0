"""A Redis Cluster, and what befalls its nodes and slots.

Redis replicates after it has answered. So what a primary wrote just before it was killed or stopped may be lost with
it, however its clients behave: such losses are counted apart.
"""

import random
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Self

import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.chaos.brokers import single
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster, slot_of
from tests.support.servers.cluster_node import Node
from tests.support.servers.redis_version import major_version
from tests.support.servers.replication import Replication

#: How long a failover may take, in s.
FAILOVER_S = 30.0
#: Longest DEBUG SLEEP, in s. After 1 s a node counts as failed.
PAUSE_S = 0.4
#: The longest time for which another node is in use, in s.
ADDED_S = 2.0
#: How many keys of a slot move at once, and how long each page waits, in s.
PAGE, PAGE_S = 2, 0.1


class ClusterRedis(single.SingleRedis):
    """Three primaries with a replica each.

    Args:
        directory: For the list of faults.
        queues: Queues whose slots are moved.
        seed: Seed of the victims.

    Attributes:
        cluster: The cluster.
        replication: What is lost with primaries.
    """

    #: A primary is killed whose replica takes its place, slots move and nodes come and go.
    weights: ClassVar = {
        **single.WEIGHTS,
        "redis kill": 0,
        "failover": 10,
        "primary kill": 10,
        "node stopped": 8,
        "node added": 8,
        "slot move": 20,
    }

    def __init__(self, directory: Path, queues: Collection[str] = (), seed: int = 0) -> None:
        super().__init__(directory)
        debug = ("--enable-debug-command", "yes") if major_version() >= 7 else ()
        self.cluster = PrivateCluster(*debug)
        self.replication = Replication(self.cluster)
        self._queues = tuple(queues)
        self._chance = random.Random(seed)

    def url(self, by: str) -> str:
        """Returns the broker URL. Stock has no transport for it."""
        return self.cluster.url

    def client(self) -> redis.RedisCluster:  # type: ignore[override]
        """Returns a client of all nodes."""
        return self.cluster.client(client_name=single.HARNESS, socket_timeout=10)

    def acts(self, strength: float, chance: random.Random) -> single.Acts:
        """Returns what may befall it, and its nodes and slots."""
        return {
            **super().acts(strength, chance),
            "failover": self.fail_over,
            "primary kill": lambda: self.kill(single.AWAY_S * strength),
            "node stopped": lambda: self.stop_node(single.AWAY_S * strength),
            "node added": lambda: self.change_nodes(ADDED_S * strength),
            "slot move": self.move_slot,
        }

    def kill(self, away_s: float) -> None:
        """Kills a primary, waits for its replica, and starts the old one again, which follows it."""
        begin, old = time.time(), self._victim()
        new = self.cluster.replicas_of(old)[0]
        old.kill()
        gone = time.time()
        self.cluster.await_promotion(new)
        self.replication.note(old, new, gone)
        time.sleep(away_s)
        old.start()
        self._settle()
        self.faults.add("primary kill", begin=begin, end=time.time(), note=str(old))

    def stop_node(self, for_s: float) -> None:
        """Stops the process of a primary until its replica has taken its place, and a while longer."""
        begin, old = time.time(), self._victim()
        new = self.cluster.replicas_of(old)[0]
        old.stop()
        stopped = time.time()
        self.cluster.await_promotion(new)
        self.replication.note(old, new, stopped)
        time.sleep(for_s)
        again = time.time()
        old.go_on()
        # It takes what stood in its sockets before it hears that it is no primary any more.
        until(lambda: old.role() == "slave", FAILOVER_S, f"{old} follows")
        self.replication.note_late(again, time.time())
        self._settle()
        self.faults.add("node stopped", begin=begin, end=time.time(), note=str(old))

    def fail_over(self) -> None:
        """Makes a replica the primary, while the old one lives."""
        begin, old = time.time(), self._victim()
        self.cluster.failover(old)
        self._settle()
        self.faults.add("cluster failover", begin=begin, end=time.time(), note=str(old))

    def move_slot(self) -> None:
        """Moves the slot of a queue to another primary, in pages with pauses."""
        begin, queue = time.time(), self._chance.choice(self._queues)
        old = self.cluster.node_of(queue)
        new = self._chance.choice([node for node in self.cluster.primaries() if node is not old])
        moved = self.cluster.move_slot(slot_of(queue), new, PAGE, PAGE_S)
        self.faults.add("slot move", begin=begin, end=time.time(), note=f"{queue} from {old} to {new}: {moved} keys")

    def change_nodes(self, for_s: float) -> None:
        """Adds a node, gives it the slot of a queue for a while, and removes it."""
        begin, queue = time.time(), self._chance.choice(self._queues)
        new = self.cluster.add_node()
        self.cluster.move_slot(slot_of(queue), new)
        time.sleep(for_s)
        self.cluster.remove_node(new)
        self.cluster.await_agreement()
        self.faults.add("node added", begin=begin, end=time.time(), note=str(new))

    def excuse(self, at: float) -> str:
        """Returns why a message that was written at a time (s since the epoch) may be gone; empty if it must not."""
        return "written to a primary that was lost before its replica had it" if self.replication.excuses(at) else ""

    def pause(self, for_s: float) -> None:
        """Makes a primary answer nobody for a while, which the others do not take for its end."""
        begin, node = time.time(), self._victim()
        node.client.execute_command("DEBUG", "SLEEP", min(for_s, PAUSE_S))
        self.faults.add("debug sleep", begin=begin, end=time.time())

    def flush_scripts(self) -> None:
        """Makes all nodes forget all scripts."""
        for node in self.cluster.primaries():
            node.client.script_flush()
        self.faults.add("script flush", begin=time.time())

    def fill(self, for_s: float) -> None:
        """Makes a primary full for a while."""
        begin, node = time.time(), self._victim()
        node.client.config_set("maxmemory", int(node.client.info("memory")["used_memory"]))
        time.sleep(for_s)
        node.client.config_set("maxmemory", 0)
        self.faults.add("redis full", begin=begin, end=time.time())

    def node_client(self) -> redis.Redis:
        """Returns a client of a primary."""
        return redis.Redis(port=self._victim().port, decode_responses=True, client_name=single.HARNESS)

    def look(self) -> None:
        """Keeps no log: after a failover no node's log is whole."""

    def steps(self, ids: Collection[str]) -> dict[str, list[str]]:
        """Knows nothing of single messages."""
        return {}

    def _primary(self) -> PrivateRedis:
        return self._victim().server

    def _victim(self) -> Node:
        return self._chance.choice(self.cluster.primaries())

    def _settle(self) -> None:
        self.cluster.await_in_sync()
        self.cluster.await_agreement()

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.replication.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.replication.__exit__()
        self.cluster.__exit__()
        self.server.close()
        shutil.rmtree(self._log)
