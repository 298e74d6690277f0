"""The rows of a job reach the queues of a Redis Cluster of several nodes, each once."""

from types import SimpleNamespace
from typing import Any

from celery_ext.spark.broker import Broker
from celery_ext.spark.write.sender import Sender
from kombu_delayq.store.bulk_jobs import JobRun
from kombu_delayq.store.types import Offer
from tests.support.servers.cluster import PrivateCluster


def test_two_runs_of_a_job_send_each_row_once(cluster: PrivateCluster) -> None:
    """Queues on all nodes get their rows from the first run; the second finds that all were sent, and commits."""
    store = Broker.of(cluster.url, None, {}).connect()
    options: Any = SimpleNamespace(
        chunk_size=50, chunk_bytes=500_000, max_rate=0, max_queue_depth=0, write_timeout=30.0
    )
    queues = "abcd"
    assert len({cluster.node_of(queue) for queue in queues}) > 1
    for sent, repeated in ((400, 0), (0, 400)):
        job = JobRun("j", store.jobs.new_run(), 600_000)
        assert store.jobs.begin(job).word == "open"
        sender = Sender(store, job, options)
        for queue in queues:
            sender.add(queue, [Offer(f"i{number}", "", 0, f"body {number}") for number in range(100)])
        sender.flush()
        sender.close()
        assert (sender.enqueued, sender.repeated) == (sent, repeated)
    assert store.jobs.finish(job, "committed") == "committed"
    assert [store.client.llen(queue) for queue in queues] == [100] * 4
    store.close()
