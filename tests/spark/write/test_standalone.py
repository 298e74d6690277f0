"""Jobs on a standalone cluster of two workers, as the recipe starts them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyarrow import RecordBatch

from celery_ext.demo.private_redis import PrivateRedis
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.spark import child, session
from tests.support.spark.jobs import numbers
from tests.support.spark.standalone import EXECUTOR, HOME, StandaloneCluster
from tests.support.spark.stepped import Journal

pytestmark = [pytest.mark.wide, pytest.mark.timeout(600)]

HERE = "tests.spark.write.test_standalone"
EXAMPLE = ROOT / "docs" / "examples" / "spark"
ORDERS = 300


@pytest.fixture
def standalone(java: None, tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A master and two workers, which the test may harm."""
    cluster = StandaloneCluster(tmp_path)
    yield cluster
    cluster.close()


def submit(standalone: StandaloneCluster, directory: Path, server: PrivateRedis) -> None:
    """Submits the job of the example to a cluster, as the recipe does."""
    conf = [f"{name}={value}" for name, value in EXECUTOR.items()]
    subprocess.run(
        [
            str(HOME / "bin" / "spark-submit"),
            *("--master", standalone.url),
            *(each for one in conf for each in ("--conf", one)),
            *("--py-files", str(EXAMPLE / "session.py")),
            str(EXAMPLE / "close_unpaid.py"),
            *(str(directory), "--broker", server.url, "--speed-up", "1"),
        ],
        env={**os.environ, **session.environment(), "SPARK_HOME": str(HOME)},
        check=True,
        timeout=300,
    )


def test_the_example_runs_on_a_cluster(
    standalone: StandaloneCluster, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """Each order becomes a task, by executors of both workers."""
    shop = [
        sys.executable,
        "-c",
        f"import orders, pathlib; orders.Shop(pathlib.Path('shop'), {ORDERS}, 1, 1).write_orders()",
    ]
    subprocess.run(shop, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(EXAMPLE)}, check=True)
    submit(standalone, tmp_path / "shop", redis_server)
    assert client.zcard("delayq:{closing}:due") == ORDERS
    assert all(list((tmp_path / f"work-{number}").glob("app-*/*/stderr")) for number in range(2))


def stop_once(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """After 20 rows the first task to come so far notes that, with its process id, and does no more."""
    for number, batch in enumerate(batches, 1):
        yield batch
        if number == 4 and journal.broker.set("stopped", 1, nx=True):
            journal.note(f"half way {os.getpid()}")
            until(lambda: journal.lines("never"), 600)


@pytest.mark.nightly
def test_a_worker_that_is_killed_costs_no_row(
    standalone: StandaloneCluster, redis_server: PrivateRedis, client: redis.Redis, tmp_path: Path
) -> None:
    """Its Spark tasks run again on the other worker, and each row is one message."""
    rows = {"rows": 200, "partitions": 4, "step": f"{HERE}:stop_once", "options": {"job_id": "standalone"}}
    journal, where = Journal(redis_server.port), {"port": redis_server.port, "master": standalone.url}
    with child.running(tmp_path / "child", jobs=[rows], conf=EXECUTOR, **where) as driver:
        until(lambda: journal.lines("half way") or driver.poll() is not None, 150)
        [line] = journal.lines("half way")
        standalone.kill(standalone.worker_of(int(line.split()[-1])))
        assert driver.wait(240) == 0, (tmp_path / "child" / "log").read_text()
    assert numbers(client) == list(range(200))
    assert len({json.dumps(message) for message in client.lrange("q", 0, -1)}) == 200
