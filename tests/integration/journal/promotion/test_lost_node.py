"""A node of a Redis Cluster dies without a replica, and comes back empty: its queues are restored, the others go on."""

from collections import Counter
from pathlib import Path
from typing import cast

from kombu import Connection

from celery_ext.connection import TRANSPORT, open_store
from celery_ext.journal import JournaledStore
from celery_ext.journal.promotion.worker import JournalWorker
from kombu_delayq.channel import DelayedChannel
from tests.support.conditions import until
from tests.support.journal.stores import DAY_MS, addition, in_redis
from tests.support.servers.cluster import PrivateCluster

YEAR_S = 365 * 86_400


def test_a_primary_that_comes_back_empty(own_cluster: PrivateCluster, tmp_path: Path) -> None:
    """What waited there is promoted again, each row once; rows of queues on other nodes are left alone."""
    options = {"journal_url": f"sqlite:///{tmp_path}/journal.db", "journal_lead": YEAR_S, "journal_restore": "auto"}

    def connect() -> JournaledStore:
        with Connection(own_cluster.url, transport=TRANSPORT, transport_options=options) as connection:
            return cast(JournaledStore, open_store(connection, pool=DelayedChannel.own_pool))

    victim = own_cluster.node_of("a")
    other = next(name for name in "bcdefgh" if own_cluster.node_of(name) is not victim)
    store = connect()
    due_ms = store.now_ms() + DAY_MS
    ids = [f"id {number}" for number in range(50)]
    store.journal.add([addition(one, due_ms, queue) for one in ids for queue in ("a", other)])
    worker = JournalWorker(connect)
    worker.start()
    try:
        until(lambda: len(in_redis(store, "a")) == len(in_redis(store, other)) == 50, timeout_s=30.0)
        for replica in own_cluster.replicas_of(victim):
            own_cluster.kill(replica)
        own_cluster.kill(victim)
        own_cluster.restart(victim)
        until(lambda: [one.restored_ms for one in store.journal.epochs()] not in ([], [None]), timeout_s=60.0)
        until(lambda: store.journal.counts() == {} and len(in_redis(store, "a")) == 50, timeout_s=30.0)
    finally:
        worker.stop(10.0)
    [loss] = store.journal.epochs()
    assert loss.watermarks.of(other) == float("inf")
    assert Counter(in_redis(store, "a")) == Counter(in_redis(store, other)) == Counter(ids)
    store.close()
