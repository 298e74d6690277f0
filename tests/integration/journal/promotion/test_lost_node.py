"""Nodes of a Redis Cluster: one comes back empty, and its queues are restored; one fails over, and nothing is lost."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from kombu import Connection

from celery_ext.connection import TRANSPORT, open_store
from celery_ext.journal import JournaledStore
from celery_ext.journal.worker import JournalWorker
from kombu_delayq.channel import DelayedChannel
from tests.support.conditions import until
from tests.support.journal.stores import DAY_MS, addition, in_redis
from tests.support.servers.cluster import PrivateCluster
from tests.support.servers.cluster_node import Node

YEAR_S = 365 * 86_400
IDS = [f"id {number}" for number in range(50)]

#: Connects to the cluster as a promoter does.
Connect = Callable[[], JournaledStore]


@pytest.fixture
def connect(patient_cluster: PrivateCluster, tmp_path: Path) -> Connect:
    """Makes stores over one journal, whose rows are promoted a year before they are due."""
    options = {"journal_url": f"sqlite:///{tmp_path}/journal.db", "journal_lead": YEAR_S, "journal_restore": "auto"}

    def connect() -> JournaledStore:
        with Connection(patient_cluster.url, transport=TRANSPORT, transport_options=options) as connection:
            return cast(JournaledStore, open_store(connection, pool=DelayedChannel.own_pool))

    return connect


@pytest.fixture
def store(connect: Connect) -> Iterator[JournaledStore]:
    """One of these stores."""
    store = connect()
    yield store
    store.close()


def elsewhere(cluster: PrivateCluster) -> str:
    """Returns the name of a queue that is not on the node of the queue ``a``."""
    return next(name for name in "bcdefgh" if cluster.node_of(name) is not cluster.node_of("a"))


def fill(store: JournaledStore, *queues: str) -> None:
    """Adds rows to queues that are due tomorrow."""
    due_ms = store.now_ms() + DAY_MS
    store.journal.add([addition(one, due_ms, queue) for one in IDS for queue in queues])


def come_back_empty(cluster: PrivateCluster, victim: Node) -> None:
    """Kills a primary and its replicas, and starts it again."""
    for replica in cluster.replicas_of(victim):
        replica.kill()
    victim.kill()
    victim.start()


def test_a_primary_that_comes_back_empty(
    patient_cluster: PrivateCluster, store: JournaledStore, connect: Connect
) -> None:
    """What waited there is promoted again, each row once; rows of queues on other nodes are left alone."""
    victim, other = patient_cluster.node_of("a"), elsewhere(patient_cluster)
    fill(store, "a", other)
    worker = JournalWorker(connect)
    worker.start()
    try:
        until(lambda: len(in_redis(store, "a")) == len(in_redis(store, other)) == 50)
        come_back_empty(patient_cluster, victim)
        until(lambda: [one.restored_ms for one in store.journal.epochs()] not in ([], [None]), timeout_s=60.0)
        until(lambda: store.journal.counts() == {} and len(in_redis(store, "a")) == 50)
    finally:
        worker.stop(10.0)
    [loss] = store.journal.epochs()
    assert loss.watermarks.of(other) == float("inf")
    assert Counter(in_redis(store, "a")) == Counter(in_redis(store, other)) == Counter(IDS)
