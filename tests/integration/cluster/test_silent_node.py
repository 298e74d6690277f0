"""A node that hangs, without a replica to take its place, delays no queue of the other nodes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kombu import Connection

from kombu_delayq.channel import connect_store
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer, PageId
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.cluster_node import Node

#: How long a connection waits for a reply, and how long what concerns healthy nodes may take on a busy machine, in s.
TIMEOUT_S, SOON_S = 30.0, 15.0
#: For how long messages come due one after the other while a node hangs: longer than until it is asked again.
HANGS_S = 3.0


@pytest.fixture(scope="module")
def bare_cluster() -> Iterator[PrivateCluster]:
    """Three primaries without replicas."""
    with PrivateCluster(replicas=0) as cluster:
        yield cluster


@pytest.fixture
def queues(bare_cluster: PrivateCluster) -> list[str]:
    """Queues that nobody knows, one on each node; that of ``{delayq}`` first."""
    bare_cluster.flush()
    found = {bare_cluster.node_of(name): name for name in (f"orders{number}" for number in range(20))}
    return sorted(found.values(), key=lambda name: bare_cluster.node_of(name) is not names_node(bare_cluster))


def names_node(cluster: PrivateCluster) -> Node:
    """Returns the node that has the names of all queues, and the leases of transfer workers."""
    return cluster.node_of("{delayq}")


@contextmanager
def hanging(node: Node) -> Iterator[None]:
    """Stops a node (SIGSTOP), and lets it go on in the end."""
    node.stop()
    try:
        yield
    finally:
        node.go_on()


def connect(cluster: PrivateCluster) -> Connection:
    """Returns a connection that waits for replies for ``TIMEOUT_S``."""
    return Connection(cluster.url, transport_options={"socket_timeout": TIMEOUT_S})


@contextmanager
def running(cluster: PrivateCluster, *queues: str) -> Iterator[TransferWorker]:
    """Runs a transfer worker in a thread, which consumes some queues, as it were."""
    with connect(cluster) as connection:
        channel = connection.default_channel
        worker = TransferWorker(lambda: connect_store(channel, channel.separate_pool()), queues=lambda: queues)
        worker.start()
        try:
            yield worker
        finally:
            worker.stop(20)


def deliver(store: DelayStore, queue: str, what: str) -> float:
    """Publishes a message, and waits until it is delivered. Returns how late it was, in s."""
    before, due_ms = store.client.llen(queue), store.now_ms() + 200
    store.delivery.offer(queue, Offer(what, repr(due_ms), 0, what))
    until(lambda: store.client.llen(queue) > before, what=f"{what} is delivered to {queue}")
    return (store.now_ms() - due_ms) / 1000


@pytest.mark.parametrize("silent", [0, 1], ids=["names", "queue"])
def test_delayed_messages_of_other_nodes_come_in_time(
    bare_cluster: PrivateCluster, queues: list[str], silent: int
) -> None:
    """Also if the node hangs that knows who leads and which queues there are, and also for a queue that is new."""
    known, new = [queue for queue in queues if queue != queues[silent]]
    with connect(bare_cluster) as connection, running(bare_cluster) as worker:
        store = connection.default_channel.store
        until(lambda: worker.leading)
        for queue in (queues[silent], known):
            deliver(store, queue, "before")
        store.delivery.offer(queues[silent], Offer("due soon", "+500", 0, "due soon"))
        with hanging(bare_cluster.node_of(queues[silent])):
            late, end = [], time.monotonic() + HANGS_S
            while time.monotonic() < end:
                late += [deliver(store, queue, f"{time.monotonic()}") for queue in (known, new)]
            assert max(late) < SOON_S
            store.delivery.offer(new, Offer("later", "+600000", 0, "later"))
        until(lambda: store.client.llen(queues[silent]) == 2, what="its own are delivered when it is back")
        until(lambda: new in store.queues.names(), what="the leader registers the new queue")


def test_a_worker_that_starts_meanwhile_delivers(bare_cluster: PrivateCluster, queues: list[str]) -> None:
    """It knows no names but those of the queues that it consumes, and does not lead before it can ask who does."""
    node = names_node(bare_cluster)
    with hanging(node), connect(bare_cluster) as connection, running(bare_cluster, queues[1]) as worker:
        deliver(connection.default_channel.store, queues[1], "meanwhile")
        assert not worker.leading
        node.go_on()
        until(lambda: worker.leading)


def test_publishing_needs_no_node_but_that_of_the_queue(bare_cluster: PrivateCluster, queues: list[str]) -> None:
    """With the names' node away, messages are stored at once, one by one and as a page; names are added afterwards."""
    _, one, other = queues
    with connect(bare_cluster) as connection:
        store = connection.default_channel.store
        with hanging(names_node(bare_cluster)):
            began = time.monotonic()
            for number in range(3):
                store.delivery.offer(one, Offer(f"{number}", "+600000", 0, "body"))
            store.delivery.put(other, PageId("sender", 1), [Offer("p", "+600000", 0, "body"), Offer("q", "", 0, "now")])
            assert time.monotonic() - began < SOON_S
            assert (store.queues.size(one), store.queues.size(other), store.client.llen(other)) == (3, 1, 1)
        until(
            lambda: store.delivery.offer(one, Offer("4", "+600000", 0, "body")) and store.queues.names() == [one, other]
        )
