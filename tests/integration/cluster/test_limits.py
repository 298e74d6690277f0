"""Limits by key on a cluster, where each holds within a queue."""

import json

from kombu import Connection

from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from kombu_delayq.channel import connect_store
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import until
from tests.support.servers.cluster import PrivateCluster
from tests.support.store.consuming import end_lease, fetch, lives


def test_a_limit_holds_within_each_queue(cluster: PrivateCluster) -> None:
    """Each queue has the places of its own: they come with fetches, end with tasks and consumers, and can be set."""
    cluster.flush()
    queues = [f"orders{number}" for number in range(12)]
    queues = list({cluster.node_of(name).port: name for name in queues}.values())
    with Connection(cluster.url, transport_options={"consumer_ttl": 5}) as connection:
        channel = connection.default_channel
        store = channel.store
        limits = store.part(LimitStore)

        def running() -> dict[str, int]:
            return {queue: use.running["account"] for queue, use in limits.use(queues).items()}

        limits.declare({"account": Limit(running=1)}, queues)
        lives(store, queues=tuple(queues))
        for queue in queues:
            body = {"body": queue, "headers": {LIMIT_HEADER: "account:7"}, "properties": {}}
            store.client.lpush(store.keys.ready(queue, (0, 3, 6, 9))[0], *[json.dumps(body)] * 5)
        first = fetch(store, 8, *queues)
        assert (len(first), running()) == (3, dict.fromkeys(queues, 1))
        limits.override("account:7", Limit(running=2), queues)
        assert len(fetch(store, 8, *queues, first=10)) == 3
        for taken in first:
            assert store.fetching.ack([taken.tag], taken.queue) == []
        assert running() == dict.fromkeys(queues, 1)
        assert store.fetching.limited(queues) == [2, 2, 2]
        end_lease(store)
        worker = TransferWorker(lambda: connect_store(channel, channel.separate_pool()))
        worker.start()
        try:
            until(lambda: running() == dict.fromkeys(queues, 0), what="the places of the dead consumer are free")
        finally:
            worker.stop(20)
        assert [store.fetching.size(queue) for queue in queues] == [4, 4, 4]
