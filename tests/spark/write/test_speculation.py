from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyarrow import RecordBatch
from pyspark import TaskContext

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.spark import child, cluster
from tests.support.spark.jobs import numbers
from tests.support.spark.stepped import Journal

#: With one task done, a copy of the other is started as soon as that has taken a little longer.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Both executors are to be there when the tasks begin.
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}
COPY = "partition 1, attempt 1: "


def be_overtaken(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """The first attempt of partition 1 reads all its rows; it stops after 20 until its copy is through."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 1 and context.attemptNumber() == 0:
        read = list(batches)
        yield from read[:4]
        journal.note(f"copied after {journal.job('nightly')['enqueued']} messages")
        until(lambda: journal.lines(COPY), 60)
        yield from read[4:]
    else:
        yield from batches


@pytest.mark.nightly
@pytest.mark.timeout(600)  # six JVMs
@pytest.mark.usefixtures("java")
def test_speculative_copies(redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path) -> None:
    """A speculative copy of a slow task, and the slow one itself, together send each row once."""
    job = {
        "rows": 80,
        "partitions": 2,
        "step": f"{be_overtaken.__module__}:be_overtaken",
        "options": {"job_id": "nightly"},
    }
    journal = Journal(redis_server.port)
    with cluster.standalone(tmp_path / "cluster") as master:
        driver = child.start(
            tmp_path / "child",
            port=redis_server.port,
            jobs=[job],
            master=master,
            conf=SPECULATION,
            awaited=["partition 1, attempt 0: "],
        )
        try:
            code = driver.wait(200)
        finally:
            driver.kill()
    assert code == 0, (tmp_path / "child" / "log").read_text()
    assert numbers(client) == list(range(80))
    assert journal.lines("partition 1, attempt") == [f"{COPY}written", "partition 1, attempt 0: written"]
    assert len(journal.lines("copied")) == 1
    assert journal.job("nightly")["enqueued"] == "80"
