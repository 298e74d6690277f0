"""Python workers that are forks of our daemon instead of Spark's own."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import RecordBatch

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.spark import child
from tests.support.spark.stepped import Journal

pytestmark = pytest.mark.wide

HERE = "tests.spark.write.test_daemon"
OURS = ("celery", "celery_ext", "kombu", "kombu_delayq", "redis")


def tell_modules(batches: Iterator[RecordBatch], journal: Journal) -> Iterator[RecordBatch]:
    """Notes of which program the worker is a fork, and what it has imported before it writes."""
    program = Path(f"/proc/{os.getppid()}/cmdline").read_text().replace("\0", " ")
    modules = sorted(name for name in sys.modules if name.partition(".")[0] in OURS)
    journal.note(f"in {os.getpid()} of {program}: {' '.join(modules)}")
    yield from batches


def test_a_worker_imports_nothing_more(java: None, redis_server: PrivateRedis, tmp_path: Path) -> None:
    """A worker that has written knows no further module: the daemon has imported all of them."""
    job = {"rows": 20, "partitions": 2, "step": f"{HERE}:tell_modules", "options": {"countdown": "1h"}}
    conf = {"spark.python.daemon.module": "celery_ext.spark.daemon"}
    with child.running(tmp_path / "child", port=redis_server.port, jobs=[job], master="local[1]", conf=conf) as driver:
        assert driver.wait(240) == 0, (tmp_path / "child" / "log").read_text()
    [worker, before], [same, after] = (line.split(": ") for line in Journal(redis_server.port).lines("in "))
    assert worker == same
    assert "-m celery_ext.spark.daemon" in worker
    assert set(after.split()) - set(before.split()) == set()
