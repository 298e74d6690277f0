"""Where Redis is a cluster, each row of a job reaches its queue once, and each message that waits is read once."""

from collections.abc import Iterator, Sequence
from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from celery_ext.spark import job as job_of
from celery_ext.spark.broker import Broker
from celery_ext.spark.job_types import JobRun
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.sender import Sender
from celery_ext.spark.write.writers import prepare
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Offer
from tests.support.servers.cluster import PrivateCluster
from tests.support.spark.making import batch_of
from tests.support.spark.reading import fill, ids_of, reader_of
from tests.support.store.jobs import begun, jobs

OPTIONS: Any = SimpleNamespace(chunk_size=50, chunk_bytes=500_000, max_rate=0, max_queue_depth=0, write_timeout=30.0)
#: Queues that are not all on one node.
QUEUES = "abcd"
LATER_MS = 4_102_444_800_000.0


@pytest.fixture
def store(cluster: PrivateCluster) -> Iterator[DelayStore]:
    """The store of a broker."""
    store = Broker.of(cluster.url, None, {}).connect()
    yield store
    store.close()


def later(*ids: str) -> list[Offer]:
    return [Offer(one, repr(LATER_MS), 0, f"body {one}") for one in ids]


def test_a_job_is_prepared_written_and_committed(cluster: PrivateCluster, store: DelayStore) -> None:
    """What Spark calls on the driver and for a task works with each node's queues, also for a run after an abort."""
    batch = batch_of(n=list(range(80)), queue=[*QUEUES] * 20)
    given = {"broker_url": cluster.url, "task": "t", "job_id": "j", "id_columns": "n"}
    options, schema = WriteOptions.parse(given), from_arrow_schema(batch.schema)
    first, second = (prepare(options, schema, False, "j") for _ in range(2))
    first.write("j", iter([batch]))
    first.abort("j", first.run)
    second.commit("j", second.run, [second.write("j", iter([batch]))])
    found = job_of(cluster.url, "j")
    assert found is not None
    assert (found.state, found.rows, found.sent) == ("committed", 80, 80)
    assert [store.client.llen(queue) for queue in QUEUES] == [20] * 4


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_waits_on_all_nodes_is_read_once(cluster: PrivateCluster, store: DelayStore, partitions: int) -> None:
    """Each message is in one partition, on whichever node its queue is."""
    expected = [each for queue in QUEUES for each in fill(store, queue, 20)]
    reading = reader_of(cluster, partitions=partitions, page_size=7)
    assert sorted(chain(*ids_of(reading, reading.partitions()))) == expected


def waiting(store: DelayStore, *queues: str) -> list[str]:
    """Returns the ids that wait in queues, sorted."""
    return sorted(str(message.id) for queue in queues for message in by_id.browse(store, queue))


def test_a_cancel_that_comes_while_a_chunk_is_on_its_way(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that asked before another one cancelled, and stored after its search, takes the message back itself."""
    job = begun(store, cancels=True)
    sender, other = (Sender(store, job, OPTIONS) for _ in range(2))
    excluded, asked = jobs(store).excluded, []

    def ask(of: JobRun, ids: Sequence[str]) -> set[str]:
        found = excluded(of, ids)
        asked.append(sorted(found))
        if len(asked) == 1:
            other.cancel("celery", ["i1"])
        return found

    monkeypatch.setattr(jobs(store), "excluded", ask)
    sender.add("a", later("i0", "i1"))
    sender.flush()
    assert asked == [[], ["i1"]]
    assert waiting(store, "a") == ["i0"]
    assert (sender.cancelled, other.cancelled) == (1, 0)
