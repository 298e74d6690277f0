"""A Redis Cluster of private processes: primaries, replicas, and what befalls them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self

import redis
from redis.cluster import ClusterNode
from redis.crc import key_slot

from celery_ext.demo.private_redis import STARTS
from tests.support.conditions import until
from tests.support.servers.cluster_node import Node

SLOTS = 16384
#: How long a cluster may take to agree on anything, in s.
AGREE_S = 60.0
#: When Redis has given up a failover that it was asked for (after 5 s), because the replica did not catch up, in s.
GIVEN_UP_S = 6.0


class PrivateCluster:
    """Primaries with replicas, as private processes. Ready when entered.

    Args:
        *options: Further options of each server.
        primaries: Number of primaries, which share the slots evenly.
        replicas: Number of replicas of each.
        password: Password of all nodes, if any.
        certificate: Files of the authority, of the certificate and of its key, for TLS; without them there is none.
        node_timeout_ms: After how long a silent node counts as failed. The failover then takes about another 1 s.

    Attributes:
        nodes: All nodes, first the first primaries.
    """

    def __init__(
        self,
        *options: str,
        primaries: int = 3,
        replicas: int = 1,
        password: str = "",
        certificate: tuple[Path, Path, Path] | None = None,
        node_timeout_ms: int = 1000,
    ) -> None:
        self._password, self._certificate = password, certificate
        self._options = (*options, *self._given(node_timeout_ms))
        self._primaries, self._replicas = primaries, replicas
        self.nodes: list[Node] = []
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """Broker URL, which names the first three nodes."""
        scheme = "delayqs+cluster" if self._certificate else "delayq+cluster"
        user = f":{self._password}@" if self._password else ""
        query = f"?ssl_ca_certs={self._certificate[0]}" if self._certificate else ""
        return f"{scheme}://{user}" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3]) + query

    def client(self, **options: Any) -> redis.RedisCluster:
        """Returns a client of redis-py that decodes replies, unless the options say otherwise."""
        given: dict[str, Any] = {"decode_responses": True, "password": self._password or None}
        if self._certificate:
            given |= {"ssl": True, "ssl_ca_certs": str(self._certificate[0])}
        startup = [ClusterNode("127.0.0.1", node.port) for node in self.nodes if node.is_up]
        return redis.RedisCluster(startup_nodes=startup, **{**given, **options})

    def primaries(self) -> list[Node]:
        """Returns the nodes that run and have slots, by their own words, in the order of ``nodes``."""
        return [node for node in self._answering() if node.role() == "master" and self.slots_of(node)]

    def replicas_of(self, primary: Node) -> list[Node]:
        """Returns the nodes that run and follow a primary, by their own words."""
        return [node for node in self._answering() if node.known()[node.id]["master_id"] == primary.id]

    def slots_of(self, node: Node) -> list[int]:
        """Returns the slots of a node, by its own words."""
        own = node.known()[node.id]
        return [slot for part in own["slots"] for slot in range(int(part[0]), int(part[-1]) + 1)]

    def node_of(self, key: str | int) -> Node:
        """Returns the primary that has a key, or a slot given as its number. If two say so, the newer one is right."""
        slot = key if isinstance(key, int) else slot_of(key)

        def find() -> Node | None:
            having = [node for node in self.primaries() if slot in self.slots_of(node)]
            return max(having, key=lambda node: int(node.known()[node.id]["epoch"]), default=None)

        return until(find, AGREE_S, f"a primary of slot {slot}")

    def flush(self) -> None:
        """Removes all keys and scripts."""
        for node in self.primaries():
            node.client.flushall()
            node.client.script_flush()

    def failover(self, primary: Node) -> Node:
        """Makes a replica of a primary that lives the primary, and returns it when both nodes have changed."""
        replica, asked_at = self.replicas_of(primary)[0], -inf

        def has_changed() -> bool:
            nonlocal asked_at
            if replica.role() == "slave" and monotonic() - asked_at > GIVEN_UP_S:
                asked_at = monotonic()
                replica.client.execute_command("CLUSTER FAILOVER")
            return replica.role() == "master" and primary.role() == "slave"

        until(has_changed, AGREE_S, f"{replica} became primary")
        return replica

    def await_promotion(self, replica: Node) -> None:
        """Waits until a replica has become a primary with slots."""
        until(lambda: replica.role() == "master" and self.slots_of(replica), AGREE_S, f"{replica} became primary")

    def move_slot(self, slot: int, to: Node, page: int = 100, pause_s: float = 0.0) -> int:
        """Moves a slot to a primary while clients use it. Returns the number of keys that moved.

        Args:
            slot: Number of the slot.
            to: The primary that gets it.
            page: How many keys move at once.
            pause_s: How long each page waits, in s. Meanwhile the keys of the slot are in two places.
        """
        old, moved = self.node_of(slot), 0
        if old is to:
            return 0
        to.set_slot(slot, "IMPORTING", old.id)
        old.set_slot(slot, "MIGRATING", to.id)
        auth = ("AUTH", self._password) if self._password else ()
        while keys := old.client.execute_command("CLUSTER GETKEYSINSLOT", slot, page):
            try:
                old.client.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, *auth, "KEYS", *keys)
            except redis.ResponseError as error:
                error.add_note(f"keys of {old} that were to move to {to}: {keys}")
                raise
            moved += len(keys)
            sleep(pause_s)
        for node in (to, old, *self._primaries_but(to, old)):  # the new owner first: no moment has no owner
            node.set_slot(slot, "NODE", to.id)
        return moved

    def add_node(self) -> Node:
        """Starts a node and adds it, as a primary without slots. Returns it when it takes commands."""
        node = self._start(self._running)
        self.nodes.append(node)
        self._introduce([node])
        self.await_agreement()
        return node

    def remove_node(self, node: Node) -> None:
        """Removes a node without replicas: its slots go to the first of the other primaries, and its process ends."""
        for slot in self.slots_of(node):
            self.move_slot(slot, next(one for one in self.primaries() if one is not node))
        self.nodes.remove(node)
        for one in self._answering():
            one.client.execute_command("CLUSTER FORGET", node.id)
        node.close()

    def await_agreement(self) -> None:
        """Waits until all nodes that run know each other and agree on all slots."""
        until(self._agree, AGREE_S, "the nodes agree")

    def await_in_sync(self) -> None:
        """Waits until each replica that runs has all that its primary has."""
        until(self._in_sync, AGREE_S, "replicas in sync")

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self.nodes = [self._start(starting) for _ in range(self._primaries * (1 + self._replicas))]
            self._form()
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _given(self, node_timeout_ms: int) -> Iterator[str]:
        yield from ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms))
        yield from ("--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no")
        yield from ("--cluster-replica-validity-factor", "0", "--appendonly", "no")
        yield from ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        if self._password:
            yield from ("--requirepass", self._password, "--masterauth", self._password)
        if self._certificate:
            authority, certificate, key = (str(file) for file in self._certificate)
            yield from ("--tls-ca-cert-file", authority, "--tls-cert-file", certificate, "--tls-key-file", key)
            yield from ("--tls-cluster", "yes", "--tls-replication", "yes", "--tls-auth-clients", "no")

    def _start(self, running: ExitStack) -> Node:
        """Starts a node, on other ports if another process has taken those that were free."""
        for left in reversed(range(STARTS)):
            node = Node(*self._options, password=self._password, tls=self._certificate is not None)
            running.callback(node.close)
            try:
                node.start()
                break
            except RuntimeError as error:
                if not left or "Address already in use" not in str(error):
                    raise
        return node

    def _form(self) -> None:
        primaries, replicas = self.nodes[: self._primaries], self.nodes[self._primaries :]
        for number, (primary, slots) in enumerate(zip(primaries, _shares(self._primaries), strict=True)):
            primary.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            primary.client.execute_command("CLUSTER ADDSLOTS", *slots)
        self._introduce(self.nodes[1:])
        for number, replica in enumerate(replicas):
            replica.client.execute_command("CLUSTER REPLICATE", primaries[number % self._primaries].id)
        self.await_in_sync()
        self.await_agreement()

    def _introduce(self, new: Iterable[Node]) -> None:
        for node in new:
            self.nodes[0].client.execute_command("CLUSTER MEET", "127.0.0.1", node.port)
        until(self._all_known, AGREE_S, "the nodes know each other")

    def _answering(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up and not node.is_stopped]

    def _primaries_but(self, *others: Node) -> list[Node]:
        return [node for node in self._answering() if node not in others and node.role() == "master"]

    def _all_known(self) -> bool:
        nodes = self._answering()
        ids = {node.id for node in nodes}
        return all(ids <= {key for key, one in node.known().items() if one["connected"]} for node in nodes)

    def _agree(self) -> bool:
        views = set()
        for node in self._answering():
            known = node.known()
            views.add(tuple(sorted((key, one["master_id"], str(one["slots"])) for key, one in known.items())))
            if node.client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
                return False
        return len(views) == 1 and self._all_known()

    def _in_sync(self) -> bool:
        for node in self._answering():
            found = node.client.info("replication")
            if found["role"] == "slave" and found["master_link_status"] != "up":
                return False
        return True


def slot_of(key: str) -> int:
    """Returns the hash slot of a key."""
    return int(key_slot(key.encode()))


def _shares(count: int) -> Iterator[range]:
    for number in range(count):
        yield range(SLOTS * number // count, SLOTS * (number + 1) // count)
