"""Jobs through Spark Connect: the client sends plans, and the data source runs on the server."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.waiting import DelayedTask, by_id
from kombu_delayq.store import DelayStore
from tests.support.spark import session
from tests.support.workers.held import KEYS

#: Packages of the client, which the extra ``test-connect`` installs.
PACKAGES = ("grpc", "grpc_status", "google.protobuf", "pandas", "zstandard")
ROWS = 20


def missing() -> list[str]:
    """Returns which packages of the client are not here."""
    return [name for name in PACKAGES if find_spec(name.partition(".")[0]) is None]


@pytest.mark.usefixtures("java")
@pytest.mark.skipif(bool(missing()), reason=f"Spark Connect needs {missing()}: the extra test-connect has them")
def test_a_job_writes_and_reads_through_spark_connect(own_server: PrivateRedis, tmp_path: Path) -> None:
    """Each row of a client's DataFrame becomes one task, due at its time, and the client reads them again."""
    job = {"directory": str(tmp_path), "url": own_server.url, "count": ROWS}
    command = [sys.executable, "-m", "tests.support.spark.connected", json.dumps(job)]
    done = subprocess.run(command, cwd=session.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {"client": "pyspark.sql.connect.session", "read": ROWS}
    store = DelayStore(own_server.client(), KEYS)
    found = [DelayedTask(message) for message in by_id.browse(store, "connected")]
    store.close()
    assert sorted(task.args[0] for task in found if task.args) == list(range(ROWS))
    assert {task.due for task in found} == {datetime(2100, 1, 1, tzinfo=UTC)}
    assert {task.name for task in found} == {"proj.record"}
