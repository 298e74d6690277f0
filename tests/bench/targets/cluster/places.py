"""Brokers that are compared: one Redis, a Redis that has all hash slots, and three nodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.journal import Journal
from tests.bench.servers import main_thread_s
from tests.bench.targets.app import OURS, make_app
from tests.bench.targets.worker import answers, started
from tests.support.servers.cluster import PrivateCluster

CLUSTER = "kombu_delayq.cluster:Transport"
#: Celery's threads, without what workers tell each other.
QUIET = ("--pool", "threads", "-c", "4", "--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True)
class Place:
    """A broker that runs.

    Attributes:
        name: Name in the figures.
        url: Broker URL.
        transport: ``broker_transport``.
        clients: A client of each primary.
        client: Sends commands to the node of their keys.
    """

    name: str
    url: str
    transport: str
    clients: Sequence[Any]
    client: Any

    def app(self) -> Celery:
        """Makes an app for it."""
        return make_app(self.url, self.transport)

    def main_s(self) -> float:
        """Returns the CPU time of the threads that run commands."""
        return sum(main_thread_s(client) for client in self.clients)

    def cpu_s(self) -> float:
        """Returns the CPU time of its processes, what nodes tell each other included."""
        found = [client.info("cpu") for client in self.clients]
        return sum(float(cpu["used_cpu_user"] + cpu["used_cpu_sys"]) for cpu in found)

    def sum_of(self, section: str, name: str) -> int:
        """Returns the sum of a number of INFO over all primaries."""
        return sum(int(client.info(section)[name]) for client in self.clients)


@dataclass(frozen=True)
class Worker:
    """Workers of a broker, and what their tasks write."""

    place: Place
    journal: Journal
    pids: Sequence[int] = field(default_factory=tuple)

    def cpu_s(self) -> float:
        """Returns the CPU time of the workers."""
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)


@contextmanager
def one_node() -> Iterator[Place]:
    """Starts a Redis that is no cluster."""
    with PrivateRedis(slots=False) as server:
        yield Place("one node", server.url, OURS, [server.client()], redis.Redis(port=server.port))


@contextmanager
def with_slots() -> Iterator[tuple[Place, Place]]:
    """Starts a Redis that has all hash slots: as the plain transport has it, and as that for clusters does."""
    with PrivateRedis(slots=True) as server:
        for_cluster = f"delayq+cluster://127.0.0.1:{server.port}"
        given = ([server.client()], redis.Redis(port=server.port))
        yield Place("plain client", server.url, OURS, *given), Place("cluster client", for_cluster, CLUSTER, *given)


@contextmanager
def three_nodes() -> Iterator[Place]:
    """Starts a cluster of three primaries."""
    with PrivateCluster(replicas=0) as cluster:
        clients = [node.client for node in cluster.nodes]
        yield Place("three nodes", cluster.url, CLUSTER, clients, cluster.client(decode_responses=False))


@contextmanager
def working(place: Place, queues: Sequence[str], workers: int = 1) -> Iterator[Worker]:
    """Starts workers that all consume the same queues; ready when entered."""
    with TemporaryDirectory(prefix="delayq-bench-") as directory, ExitStack() as opened:
        journal = Journal(Path(directory) / "journal")
        pids = [
            opened.enter_context(
                started(
                    *(place.url, place.transport, {}, *QUIET, "-n", f"w{number}@%h"),
                    queues=queues,
                    journal=journal.path,
                )
            )
            for number in range(workers)
        ]
        answers(place.url, place.transport)
        yield Worker(place, journal, pids)


#: Starts a broker.
Start = Callable[[], AbstractContextManager[Place]]
