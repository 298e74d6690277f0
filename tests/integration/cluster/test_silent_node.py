"""A node that hangs or is full, without a replica to take its place, delays no queue of the other nodes."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from kombu import Connection, Exchange, Queue
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError

from kombu_delayq.channel import connect_store
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer, PageId
from kombu_delayq.text import as_text
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.cluster_node import Node
from tests.support.workers.harness import MakeProj

#: How long a connection waits for a reply, and how long what concerns healthy nodes may take on a busy machine, in s.
TIMEOUT_S, SOON_S = 30.0, 15.0
#: For how long messages come due one after the other while a node hangs: longer than until it is asked again.
HANGS_S = 3.0
#: What befalls a node.
Failing = Callable[[Node], AbstractContextManager[None]]


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


@contextmanager
def full(node: Node) -> Iterator[None]:
    """Leaves a node no memory for writes, and gives it back in the end."""
    node.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        node.client.config_set("maxmemory", 0)


@pytest.fixture(params=[full, hanging], ids=["full", "silent"])
def failing(request: pytest.FixtureRequest) -> Failing:
    """What befalls the node of bindings."""
    found: Failing = request.param
    return found


def bindings_node(cluster: PrivateCluster) -> Node:
    """Returns the node that has kombu's bindings."""
    return cluster.node_of("{_kombu.binding}")


@pytest.fixture
def healthy(bare_cluster: PrivateCluster, queues: list[str]) -> str:
    """A queue on another node than that of bindings."""
    return next(queue for queue in queues if bare_cluster.node_of(queue) is not bindings_node(bare_cluster))


def is_bound(cluster: PrivateCluster, queue: str, exchange: str) -> bool:
    """Whether Redis has the binding of a queue to an exchange."""
    found = bindings_node(cluster).client.smembers(f"{{_kombu.binding}}.{exchange}")
    return any(as_text(member).endswith(f"\x16{queue}") for member in found)


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


def test_publishing_needs_no_binding(
    bare_cluster: PrivateCluster, healthy: str, failing: Failing, make_proj: MakeProj, caplog: pytest.LogCaptureFixture
) -> None:
    """With the bindings' node full or away, a new process publishes, also with a delay, and notes them afterwards."""
    app = make_proj(broker_url=bare_cluster.url, broker_transport_options={"socket_timeout": TIMEOUT_S})
    app.app.conf.task_queues = [Queue(healthy)]
    with failing(bindings_node(bare_cluster)), caplog.at_level(logging.WARNING, "kombu_delayq.cluster.channel"):
        began = time.monotonic()
        for countdown in (None, 600, None, 600):
            app.send("record", queue=healthy, countdown=countdown, retry=False)
        assert time.monotonic() - began < SOON_S
    with connect(bare_cluster) as connection:
        store = connection.default_channel.store
        assert (store.client.llen(healthy), store.queues.size(healthy)) == (2, 2)
    [record] = [each for each in caplog.records if each.name == "kombu_delayq.cluster.channel"]
    assert record.message.startswith("queues are used, but their bindings are noted later: ")
    until(lambda: app.send("record", queue=healthy) and is_bound(bare_cluster, healthy, "celery"))


def test_a_worker_starts_and_retries_without_bindings(
    bare_cluster: PrivateCluster, healthy: str, failing: Failing, make_proj: MakeProj
) -> None:
    """With the bindings' node full or away, a worker starts, retries go on, and it notes its bindings afterwards."""
    node = bindings_node(bare_cluster)
    app = make_proj(broker_url=bare_cluster.url)
    with failing(node):
        worker = app.worker("-Q", healthy, pool="solo", gossip=True, worker_enable_remote_control=True)
        app.send("flaky", 2, 0.1, queue=healthy)
        app.await_runs(3)
        assert [run["retries"] for run in app.runs(queue=healthy)] == [0, 1, 2]
    until(
        lambda: (
            is_bound(bare_cluster, healthy, healthy)
            and is_bound(bare_cluster, f"{worker.node}.celery.pidbox", "celery.pidbox")
        )
    )


def test_a_binding_counts_at_once_where_it_was_made(bare_cluster: PrivateCluster, healthy: str) -> None:
    """What is published by the exchange comes while the node is full, and that of other processes when it is not."""
    queue = Queue(healthy, Exchange("shop"), routing_key="shop")
    with connect(bare_cluster) as connection, connect(bare_cluster) as other:
        store = connection.default_channel.store
        with full(bindings_node(bare_cluster)):
            queue(connection.default_channel).declare()
            connection.Producer(connection.channel()).publish("own", exchange="shop", routing_key="shop")
            assert store.client.llen(healthy) == 1
        until(
            lambda: connection.Producer().publish("own", routing_key=healthy) or is_bound(bare_cluster, healthy, "shop")
        )
        before = store.client.llen(healthy)
        other.Producer().publish("other", exchange="shop", routing_key="shop")
        assert store.client.llen(healthy) == before + 1


def test_a_topic_needs_its_binding(bare_cluster: PrivateCluster, healthy: str) -> None:
    """Nothing would reach this queue, so that an error says that the node is full."""
    with connect(bare_cluster) as connection, full(bindings_node(bare_cluster)):
        queue = Queue(healthy, Exchange("news", "topic"), routing_key="news.#")
        with pytest.raises(OutOfMemoryError):
            queue(connection.default_channel).declare()


def test_an_answer_counts_whose_queue_cannot_be_deleted(bare_cluster: PrivateCluster, queues: list[str]) -> None:
    """While the names' node is away, only who deletes a queue himself gets its error."""
    with connect(bare_cluster) as connection:
        channel = connection.default_channel
        channel.pool.hurry()  # a process that consumes replies does so
        queue = Queue(queues[1], Exchange("shop"))
        queue(channel).declare()
        with hanging(names_node(bare_cluster)):
            channel.after_reply_message_received(queue.name)
            queue(channel).declare()
            with pytest.raises(RedisConnectionError):
                channel.queue_delete(queue.name)
